// The pass through a stack of block networks, features first, and its gradient.
#pragma once

#include "normalise.h"

// the BLAS that torch brings along
extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*,
            const float*, const int*, const float*, const int*, const float*, float*, const int*);
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*,
            const double*, const int*, const double*, const int*, const double*, double*,
            const int*);
}

namespace bnaf {

enum Residual : int64_t { kNone = 0, kNormal = 1, kGated = 2 };

constexpr int64_t kBandUnits = 80;   // output units per band: fewer multiply slowly
constexpr int64_t kRowChunk = 256;    // rows that one task of an elementwise pass takes
constexpr int64_t kScoreBlock = 256;  // rows scored at once where no gradient is kept

// C = A B, plus C where asked, for row-major matrices, A of m by k and B of k by n once transposed.
// BLAS counts by columns, so the operands change places.
inline void product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                    const float* a, int64_t lda, const float* b, int64_t ldb, bool add, float* c,
                    int64_t ldc) {
  const int sizes[] = {int(n), int(m), int(k), int(ldb), int(lda), int(ldc)};
  const float one = 1, beta = add;
  sgemm_(transpose_b ? "T" : "N", transpose_a ? "T" : "N", sizes, sizes + 1, sizes + 2, &one, b,
         sizes + 3, a, sizes + 4, &beta, c, sizes + 5);
}

inline void product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                    const double* a, int64_t lda, const double* b, int64_t ldb, bool add,
                    double* c, int64_t ldc) {
  const int sizes[] = {int(n), int(m), int(k), int(ldb), int(lda), int(ldc)};
  const double one = 1, beta = add;
  dgemm_(transpose_b ? "T" : "N", transpose_a ? "T" : "N", sizes, sizes + 1, sizes + 2, &one, b,
         sizes + 3, a, sizes + 4, &beta, c, sizes + 5);
}

// Weights of a stack, as normalise returned them.
template <class T>
struct Stack {
  struct Layer {
    Shape shape;
    const T *matrix, *bias, *averages;
  };
  std::vector<Layer> layers;
  int64_t transforms, features;
  const T *log_slope, *gates;
  const int64_t* orders;  // of the features before each transform but the first; may be null
  std::vector<int64_t> residuals;
  T leak;

  Stack(const Tensors& matrices, const Tensors& biases, const Tensors& averages,
        const Tensor& slope, const Tensor& gate, const Tensor& order, at::IntArrayRef kinds,
        double leak)
      : transforms(slope.size(0)),
        features(slope.size(1)),
        log_slope(slope.const_data_ptr<T>()),
        gates(gate.numel() ? gate.const_data_ptr<T>() : nullptr),
        orders(order.numel() ? order.const_data_ptr<int64_t>() : nullptr),
        residuals(kinds.vec()),
        leak(static_cast<T>(leak)) {
    for (size_t index = 0; index < matrices.size(); ++index) {
      layers.push_back({shape_of(averages[index]), matrices[index].const_data_ptr<T>(),
                        biases[index].const_data_ptr<T>(), averages[index].const_data_ptr<T>()});
    }
  }
  int64_t last() const { return static_cast<int64_t>(layers.size()) - 1; }
  const T* matrix(int64_t layer, int64_t transform) const {
    const Shape& shape = layers[layer].shape;
    return layers[layer].matrix + transform * shape.rows() * shape.columns();
  }
  const T* bias(int64_t layer, int64_t transform) const {
    return layers[layer].bias + transform * layers[layer].shape.rows();
  }
  const T* averages(int64_t layer, int64_t transform, int64_t feature) const {
    const Shape& shape = layers[layer].shape;
    const int64_t block = shape.out_block * shape.in_block;
    return layers[layer].averages + (transform * features + feature) * block;
  }
  int64_t source(int64_t transform, int64_t feature) const {
    return orders ? orders[(transform - 1) * features + feature] : feature;
  }
};

// Row bands of a layer, the last first: of each its first row, row count and column count.
template <class Body>
void over_bands(const Shape& shape, const Body& body) {
  const int64_t wanted = (shape.rows() + kBandUnits / 2) / kBandUnits;
  const int64_t count = std::max<int64_t>(1, std::min(shape.features, wanted));
  for (int64_t band = count - 1; band >= 0; --band) {
    const int64_t start = band * shape.features / count;
    const int64_t end = (band + 1) * shape.features / count;
    body(start * shape.out_block, (end - start) * shape.out_block, end * shape.in_block);
  }
}

// What a pass keeps for its gradient, or scratch of the same layout.
template <class T>
struct Pass {
  int64_t rows;
  T *inputs, *outputs, *log_slopes;  // (features, rows) of one network
  std::vector<T*> hidden;            // before each activation
  std::vector<T*> slopes;            // of each layer's output; the first is not used
};

template <class T, Activation kind>
class Network {
 public:
  Network(const Stack<T>& stack, int64_t transform) : stack_(stack), transform_(transform) {}

  void forward(const Pass<T>& pass, T* values, T* scaled) const {
    const int64_t rows = pass.rows, features = stack_.features;
    const T* input = pass.inputs;
    for (int64_t feature = 0; feature < features; ++feature) {
      std::fill_n(pass.log_slopes + feature * rows, rows,
                  stack_.log_slope[transform_ * features + feature]);
    }
    for (int64_t layer = 0; layer <= stack_.last(); ++layer) {
      const bool is_last = layer == stack_.last();
      T* out = is_last ? pass.outputs : pass.hidden[layer];
      multiply(layer, input, out, rows);
      if (is_last) break;
      activate(layer, pass, values, scaled);
      input = values;
    }
    finish(pass);
  }

  // `grads` are those of matrix, bias and averages of each layer; the rest is scratch.
  void backward(const Pass<T>& pass, const T* grad_out, const T* grad_log, T* values, T* scaled, T* grad_h,
                T* grad_below, T* grad_scaled, T* grad_slope, T* grad_x, const std::vector<T*>& grads,
                T* grad_log_slope) const {
    const int64_t rows = pass.rows, features = stack_.features, last = stack_.last();
    for (int64_t feature = 0; feature < features; ++feature) {
      T total = 0;
      for (int64_t row = 0; row < rows; ++row) total += grad_log[feature * rows + row];
      grad_log_slope[transform_ * features + feature] = total;
    }
    if (last > 0) divide(pass.slopes[last], grad_log, grad_slope, features * rows);
    const T* grad = grad_out;
    for (int64_t layer = last; layer >= 0; --layer) {
      const T* input = pass.inputs;
      if (layer > 0) {
        recompute(layer, pass, values, scaled, grad_slope, grads[3 * layer + 2], grad_scaled);
        input = values;
      }
      T* below = layer ? grad_below : grad_x;
      pull_back(layer, input, grad, below, grads[3 * layer], grads[3 * layer + 1], rows);
      if (layer > 0) bend(layer, pass, values, scaled, grad_scaled, below, grad_slope);
      grad = below;
      std::swap(grad_h, grad_below);
    }
  }

 private:
  const Stack<T>& stack_;
  int64_t transform_;

  void multiply(int64_t layer, const T* input, T* out, int64_t rows) const {
    const Shape& shape = stack_.layers[layer].shape;
    const T* matrix = stack_.matrix(layer, transform_);
    over_bands(shape, [&](int64_t first, int64_t count, int64_t columns) {
      product(false, false, count, rows, columns, matrix + first * shape.columns(),
              shape.columns(), input, rows, false, out + first * rows, rows);
    });
    if (layer < stack_.last()) return;  // else the activation adds the bias
    for (int64_t row = 0; row < shape.rows(); ++row) {
      const T bias = stack_.bias(layer, transform_)[row];
      for (int64_t column = 0; column < rows; ++column) out[row * rows + column] += bias;
    }
  }

  // Run over features and chunks of rows.
  template <class Body>
  void over_tasks(int64_t rows, const Body& body) const {
    const int64_t chunks = (rows + kRowChunk - 1) / kRowChunk;
    at::parallel_for(0, stack_.features * chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t start = task % chunks * kRowChunk;
        body(task / chunks, start, std::min(rows, start + kRowChunk) - start);
      }
    });
  }

  // Smallest |h| of each row among the units of a feature, and e^{2 nearest}; tells whether that
  // is safe to use.
  static bool find_nearest(const T* h, int64_t width, int64_t rows, int64_t count, T* nearest,
                           T* lift) {
    if constexpr (kind != kTanh) return true;
    std::fill_n(nearest, count, std::numeric_limits<T>::infinity());
    for (int64_t unit = 0; unit < width; ++unit) {
      const T* line = h + unit * rows;
#pragma omp simd
      for (int64_t row = 0; row < count; ++row) {
        const T magnitude = std::abs(line[row]);
        nearest[row] = magnitude < nearest[row] ? magnitude : nearest[row];
      }
    }
    T largest = 0;
    for (int64_t row = 0; row < count; ++row) {
      largest = std::max(largest, nearest[row]);
      lift[row] = exponential(2 * nearest[row]);
    }
    return largest < T(kFarOut);
  }

  // values = activation(h + bias), scaled = its slope times the slopes so far, and the slopes of
  // the next layer's outputs.
  void activate(int64_t layer, const Pass<T>& pass, T* values, T* scaled) const {
    const Curve<T, kind> curve{stack_.leak};
    const int64_t rows = pass.rows, width = stack_.layers[layer].shape.out_block;
    const int64_t next = stack_.layers[layer + 1].shape.out_block;
    over_tasks(rows, [&](int64_t feature, int64_t start, int64_t count) {
      const int64_t at = feature * width * rows + start;
      const T* bias = stack_.bias(layer, transform_) + feature * width;
      T nearest[kRowChunk], lift[kRowChunk];
      T* h = pass.hidden[layer] + at;
      for (int64_t unit = 0; unit < width; ++unit) {
#pragma omp simd
        for (int64_t row = 0; row < count; ++row) h[unit * rows + row] += bias[unit];
      }
      const bool safe = find_nearest(h, width, rows, count, nearest, lift);
      for (int64_t unit = 0; unit < width; ++unit) {
        const int64_t line = at + unit * rows;
        bend_line(curve, pass.hidden[layer] + line, layer ? pass.slopes[layer] + line : nullptr,
                  safe ? lift : nearest, safe, count, values + line, scaled + line);
      }
      if constexpr (kind == kTanh) {
        T* log_slopes = pass.log_slopes + feature * rows + start;
        for (int64_t row = 0; row < count; ++row) log_slopes[row] -= 2 * nearest[row];
      }
      product(false, false, next, count, width, stack_.averages(layer + 1, transform_, feature),
              width, scaled + at, rows, false,
              pass.slopes[layer + 1] + feature * next * rows + start, rows);
    });
  }

  static void bend_line(const Curve<T, kind>& curve, const T* h, const T* before, const T* reach,
                        bool safe, int64_t count, T* values, T* scaled) {
    if (kind == kTanh && !safe) {
      for (int64_t row = 0; row < count; ++row) {
        const Point<T> point = curve.far_out(h[row], reach[row]);
        values[row] = point.value;
        scaled[row] = before ? point.slope * before[row] : point.slope;
      }
    } else if (before) {
#pragma omp simd
      for (int64_t row = 0; row < count; ++row) {
        const Point<T> point = curve.at(h[row], kind == kTanh ? reach[row] : T(1));
        values[row] = point.value;
        scaled[row] = point.slope * before[row];
      }
    } else {
#pragma omp simd
      for (int64_t row = 0; row < count; ++row) {
        const Point<T> point = curve.at(h[row], kind == kTanh ? reach[row] : T(1));
        values[row] = point.value;
        scaled[row] = point.slope;
      }
    }
  }

  void finish(const Pass<T>& pass) const {
    if (stack_.last() == 0) return;
    const T* slopes = pass.slopes[stack_.last()];
    at::parallel_for(0, stack_.features * pass.rows, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t index = begin; index < end; ++index) {
        pass.log_slopes[index] += std::log(std::max(slopes[index], tiny()));
      }
    });
  }

  static constexpr T tiny() { return std::numeric_limits<T>::min(); }

  static void divide(const T* slopes, const T* grad_log, T* grad_slope, int64_t count) {
#pragma omp simd
    for (int64_t index = 0; index < count; ++index) {
      grad_slope[index] = slopes[index] >= tiny() ? grad_log[index] / slopes[index] : T(0);
    }
  }

  // Values and scaled slopes below a layer again, and the gradients of its averages.
  void recompute(int64_t layer, const Pass<T>& pass, T* values, T* scaled, const T* grad_slope,
                 T* grad_averages, T* grad_scaled) const {
    const Curve<T, kind> curve{stack_.leak};
    const Shape& shape = stack_.layers[layer].shape;
    const int64_t rows = pass.rows, width = shape.in_block, next = shape.out_block;
    at::parallel_for(0, stack_.features, 1, [&](int64_t begin, int64_t end) {
      for (int64_t feature = begin; feature < end; ++feature) {
        const int64_t at = feature * width * rows;
        T nearest[kRowChunk], lift[kRowChunk];
        for (int64_t start = 0; start < rows; start += kRowChunk) {
          const int64_t count = std::min(kRowChunk, rows - start);
          const bool safe = find_nearest(pass.hidden[layer - 1] + at + start, width, rows, count,
                                         nearest, lift);
          for (int64_t unit = 0; unit < width; ++unit) {
            const int64_t line = at + unit * rows + start;
            bend_line(curve, pass.hidden[layer - 1] + line,
                      layer > 1 ? pass.slopes[layer - 1] + line : nullptr,
                      safe ? lift : nearest, safe, count, values + line, scaled + line);
          }
        }
        const T* upper = grad_slope + feature * next * rows;
        const int64_t block = (transform_ * stack_.features + feature) * next * width;
        product(false, true, next, width, rows, upper, rows, scaled + at, rows, false,
                grad_averages + block, width);
        product(true, false, width, rows, next, stack_.averages(layer, transform_, feature),
                width, upper, rows, false, grad_scaled + at, rows);
      }
    });
  }

  // Gradients of a layer's matrix, bias and input.
  void pull_back(int64_t layer, const T* input, const T* grad, T* grad_input, T* grad_matrix,
                 T* grad_bias, int64_t rows) const {
    const Shape& shape = stack_.layers[layer].shape;
    const T* matrix = stack_.matrix(layer, transform_);
    T* grad_weight = grad_matrix + transform_ * shape.rows() * shape.columns();
    bool add = false;
    over_bands(shape, [&](int64_t first, int64_t count, int64_t columns) {
      const int64_t at = first * shape.columns();
      product(true, false, columns, rows, count, matrix + at, shape.columns(),
              grad + first * rows, rows, add, grad_input, rows);
      product(false, true, count, columns, rows, grad + first * rows, rows, input, rows, false,
              grad_weight + at, shape.columns());
      add = true;
    });
    T* bias = grad_bias + transform_ * shape.rows();
    at::parallel_for(0, shape.rows(), 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T total = 0;
#pragma omp simd reduction(+ : total)
        for (int64_t column = 0; column < rows; ++column) total += grad[row * rows + column];
        bias[row] = total;
      }
    });
  }

  // Through the activation below a layer: grad_h in place, and the gradient of the slopes below.
  void bend(int64_t layer, const Pass<T>& pass, const T* values, const T* scaled,
            const T* grad_scaled, T* grad_h, T* grad_slope) const {
    const Curve<T, kind> curve{stack_.leak};
    const int64_t width = stack_.layers[layer].shape.in_block, rows = pass.rows;
    at::parallel_for(0, stack_.features * width, 8, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t at = unit * rows;
        const T *h = pass.hidden[layer - 1] + at, *y = values + at, *from = grad_scaled + at;
        const T *product = scaled + at, *before = layer > 1 ? pass.slopes[layer - 1] + at : nullptr;
        T *grad = grad_h + at, *lower = grad_slope + at;
#pragma omp simd
        for (int64_t row = 0; row < rows; ++row) {
          grad[row] = curve.pull_back(h[row], y[row], grad[row], from[row] * product[row]);
        }
        if (!before) continue;
#pragma omp simd
        for (int64_t row = 0; row < rows; ++row) {
          lower[row] = before[row] > 0 ? from[row] * product[row] / before[row] : T(0);
        }
      }
    });
  }
};

}  // namespace bnaf

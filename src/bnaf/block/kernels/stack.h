// The pass through a stack of block networks, features first, and its gradient.
#pragma once

#include "context.h"

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

constexpr int64_t kBandUnits = 64;   // output units per band: fewer multiply slowly
constexpr int64_t kRowChunk = 256;    // rows that one task of an elementwise pass takes
constexpr int64_t kTrainBlock = 200;  // least rows of a part that a batch is trained in
constexpr int64_t kLeastPart = 32;    // rows that are worth a thread of their own
constexpr size_t kSplitBytes = 4 << 20;  // of weights, up to which they do
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
  Layout layout;
  std::vector<Shape>& layers;
  int64_t transforms, features;
  const T *matrices, *biases, *all_averages, *log_slope, *gates;
  const int64_t* orders;  // of the features before each transform but the first; may be null
  std::vector<int64_t> residuals;
  T leak;
  Contexts<T> contexts;

  Stack(const Tensor& matrix, const Tensor& bias, const Tensor& average, const Tensor& slope,
        const Tensor& gate, const Tensor& order, at::IntArrayRef blocks, at::IntArrayRef kinds,
        double leak, const Tensors& context)
      : layout(slope.size(0), slope.size(1), blocks),
        layers(layout.layers),
        transforms(layout.transforms),
        features(layout.features),
        matrices(matrix.const_data_ptr<T>()),
        biases(bias.const_data_ptr<T>()),
        all_averages(average.const_data_ptr<T>()),
        log_slope(slope.const_data_ptr<T>()),
        gates(gate.numel() ? gate.const_data_ptr<T>() : nullptr),
        orders(order.numel() ? order.const_data_ptr<int64_t>() : nullptr),
        residuals(kinds.vec()),
        leak(static_cast<T>(leak)),
        contexts(layout, context) {}
  Stack(const Stack&) = delete;

  int64_t last() const { return layout.last(); }
  const T* matrix(int64_t layer, int64_t transform) const {
    return matrices + transform * layout.weights + layers[layer].first_weight;
  }
  const T* bias(int64_t layer, int64_t transform) const {
    return biases + transform * layout.rows + layers[layer].first_row;
  }
  const T* averages(int64_t layer, int64_t transform, int64_t feature) const {
    const Shape& shape = layers[layer];
    return all_averages + transform * layout.averages + shape.average(feature * shape.out_block);
  }
  int64_t source(int64_t transform, int64_t feature) const {
    return orders ? orders[(transform - 1) * features + feature] : feature;
  }
};

// Gradients of a stack's weights, laid out as they are.
template <class T>
struct StackGrads {
  T *matrices, *biases, *averages, *log_slope;
  bool add;  // to what is there
  Context<T> context;  // of the rows of a part; each is written once
  T* blocks = nullptr;  // what intervals add to the diagonal blocks, laid out as averages are
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
  std::vector<T*> slopes;            // of each layer's output; of the first with scales alone
  Context<const T> context;
  const bool* pointed = nullptr;     // features whose slopes are wanted; null for all
  const bool* wide = nullptr;        // features with intervals; null for none
  std::vector<T*> arrived = {};      // gradients of hidden that come from intervals

  bool wants_slopes(int64_t feature) const { return !pointed || pointed[feature]; }
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
    if (pass.context.scales()) {
      start_slopes(pass);
      const Shape& first = stack_.layers[0];
      scale_lines(input, pass.context.column_scale(first), pass.context.stride, features, rows,
                  values);
      input = values;
    }
    for (int64_t layer = 0; layer <= stack_.last(); ++layer) {
      const bool is_last = layer == stack_.last();
      T* out = is_last ? pass.outputs : pass.hidden[layer];
      multiply(layer, input, out, pass);
      if (is_last) break;
      activate(layer, pass, values, scaled);
      input = values;
    }
    finish(pass);
  }

  // `grads` are those of matrix, bias and averages of each layer; the rest is scratch.
  void backward(const Pass<T>& pass, T* grad_out, const T* grad_log, T* values, T* scaled,
                T* grad_h, T* grad_below, T* grad_scaled, T* grad_slope, T* grad_lower, T* grad_x,
                const StackGrads<T>& grads) const {
    const int64_t rows = pass.rows, features = stack_.features, last = stack_.last();
    for (int64_t feature = 0; feature < features; ++feature) {
      T total = 0;
      for (int64_t row = 0; row < rows; ++row) total += grad_log[feature * rows + row];
      T& sum = grads.log_slope[transform_ * features + feature];
      sum = grads.add ? sum + total : total;
    }
    if (pass.slopes[last]) divide(pass.slopes[last], grad_log, grad_slope, features * rows);
    T* grad = grad_out;
    for (int64_t layer = last; layer >= 0; --layer) {
      const T* input = pass.inputs;
      if (pass.context.biases) pull_back_context(layer, pass, grads.context, grad, grad_slope);
      if (layer > 0) {
        recompute(layer, pass, grad_slope, grads, values, scaled, grad_scaled, grad_lower);
        std::swap(grad_slope, grad_lower);
        input = values;
      }
      T* below = layer ? grad_below : grad_x;
      if (pass.context.scales()) {  // the products take inputs that are scaled
        const T* column = pass.context.column_scale(stack_.layers[layer]);
        scale_lines(input, column, pass.context.stride, stack_.layers[layer].columns(), rows,
                    grad_scaled);
        pull_back(layer, grad_scaled, grad, below, grads, rows);
        pull_back_columns(layer, pass, input, layer ? scaled : nullptr, grad_slope, grads.context,
                          below);
      } else {
        pull_back(layer, input, grad, below, grads, rows);
      }
      if (layer > 0) bend_back(layer, pass, values, scaled, below);
      if (layer > 0 && pass.wide) add_arrived(layer, pass, below);
      grad = below;
      std::swap(grad_h, grad_below);
    }
  }

 private:
  const Stack<T>& stack_;
  int64_t transform_;

  void multiply(int64_t layer, const T* input, T* out, const Pass<T>& pass) const {
    const Shape& shape = stack_.layers[layer];
    const int64_t rows = pass.rows;
    const T* matrix = stack_.matrix(layer, transform_);
    over_bands(shape, [&](int64_t first, int64_t count, int64_t columns) {
      product(false, false, count, rows, columns, matrix + first * shape.columns(),
              shape.columns(), input, rows, false, out + first * rows, rows);
    });
    if (layer < stack_.last()) return;  // else the activation adds the bias
    if (pass.context.biases) return modulate_units(layer, pass, 0, shape.rows(), 0, rows, out);
    for (int64_t row = 0; row < shape.rows(); ++row) {
      const T bias = stack_.bias(layer, transform_)[row];
      for (int64_t column = 0; column < rows; ++column) out[row * rows + column] += bias;
    }
  }

  // The slopes of the first layer, where it has scales: its input's is one.
  void start_slopes(const Pass<T>& pass) const {
    const Shape& first = stack_.layers[0];
    const Context<const T>& context = pass.context;
    const T *row_scale = context.row_scale(first), *column_scale = context.column_scale(first);
    for (int64_t unit = 0; unit < first.rows(); ++unit) {
      const T* scale = column_scale + unit / first.out_block * context.stride;
      T* slopes = pass.slopes[0] + unit * pass.rows;
      std::copy_n(row_scale + unit * context.stride, pass.rows, slopes);
      scale_line(scale, pass.rows, slopes);
    }
  }

  // What a context does to the sums of some units of a layer, for rows from `start` on.
  void modulate_units(int64_t layer, const Pass<T>& pass, int64_t first, int64_t units,
                      int64_t start, int64_t count, T* h) const {
    const Context<const T>& context = pass.context;
    const int64_t at = first * context.stride + start;
    const Shape& shape = stack_.layers[layer];
    const T* scales = context.scales() ? context.row_scale(shape) + at : nullptr;
    modulate(context.bias(shape) + at, scales, context.stride, units, count, pass.rows, h);
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

  // Add the biases of a feature's units, where there are any, and find the smallest |h| of each row
  // among them and e^{2 nearest}; tells whether that is safe to use.
  template <bool biased>
  static bool find_nearest(T* h, const T* bias, int64_t width, int64_t rows, int64_t count,
                           T* nearest, T* lift) {
    if constexpr (kind == kTanh) {
      std::fill_n(nearest, count, std::numeric_limits<T>::infinity());
    } else if constexpr (!biased) {
      return true;
    }
    for (int64_t unit = 0; unit < width; ++unit) {
      T* line = h + unit * rows;
      const T shift = biased ? bias[unit] : T(0);
#pragma omp simd
      for (int64_t row = 0; row < count; ++row) {
        const T moved = line[row] + shift;
        if constexpr (biased) line[row] = moved;
        if constexpr (kind == kTanh) {
          const T magnitude = std::abs(moved);
          nearest[row] = magnitude < nearest[row] ? magnitude : nearest[row];
        }
      }
    }
    if constexpr (kind != kTanh) return true;
    T largest = 0;
#pragma omp simd reduction(max : largest)
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
    const int64_t rows = pass.rows, width = stack_.layers[layer].out_block;
    const int64_t next = stack_.layers[layer + 1].out_block;
    over_tasks(rows, [&](int64_t feature, int64_t start, int64_t count) {
      const int64_t at = feature * width * rows + start;
      const T* bias = stack_.bias(layer, transform_) + feature * width;
      T nearest[kRowChunk], lift[kRowChunk];
      T* h = pass.hidden[layer] + at;
      if (pass.context.biases) {
        modulate_units(layer, pass, feature * width, width, start, count, h);
      }
      const bool safe = pass.context.biases
                            ? find_nearest<false>(h, bias, width, rows, count, nearest, lift)
                            : find_nearest<true>(h, bias, width, rows, count, nearest, lift);
      for (int64_t unit = 0; unit < width; ++unit) {
        const int64_t line = at + unit * rows;
        const bool carried = pass.slopes[layer] && pass.wants_slopes(feature);
        const T* before = carried ? pass.slopes[layer] + line : nullptr;
        bend_line(curve, pass.hidden[layer] + line, before, safe ? lift : nearest, safe, count,
                  values + line, scaled + line, nullptr);
        if (!pass.context.scales()) continue;
        const T* scale = pass.context.column_scale(stack_.layers[layer + 1]) + start +
                         (feature * width + unit) * pass.context.stride;
        scale_line(scale, count, values + line);
        scale_line(scale, count, scaled + line);
      }
      if constexpr (kind == kTanh) {
        T* log_slopes = pass.log_slopes + feature * rows + start;
        for (int64_t row = 0; row < count; ++row) log_slopes[row] -= 2 * nearest[row];
      }
      T* onward = pass.slopes[layer + 1] + feature * next * rows + start;
      if (!pass.wants_slopes(feature)) {
        if (layer + 1 == stack_.last()) std::fill_n(onward, count, T(1));
        return;
      }
      product(false, false, next, count, width, stack_.averages(layer + 1, transform_, feature),
              width, scaled + at, rows, false, onward, rows);
      if (!pass.context.scales()) return;
      const T* scale = pass.context.row_scale(stack_.layers[layer + 1]) + start;
      for (int64_t unit = feature * next; unit < (feature + 1) * next; ++unit) {
        scale_line(scale + unit * pass.context.stride, count,
                   pass.slopes[layer + 1] + unit * rows + start);
      }
    });
  }

  // One unit: value, slope times that before where there is one, and then also the slope alone
  // where it is asked for.
  static void bend_line(const Curve<T, kind>& curve, const T* h, const T* before, const T* reach,
                        bool safe, int64_t count, T* values, T* scaled, T* steps) {
    const auto run = [&](const auto& bend_at) {
      if (!before) return over_line<false, false>(bend_at, h, before, count, values, scaled, steps);
      if (!steps) return over_line<true, false>(bend_at, h, before, count, values, scaled, steps);
      over_line<true, true>(bend_at, h, before, count, values, scaled, steps);
    };
    if (kind == kTanh && !safe) {
      run([&](int64_t row) { return curve.far_out(h[row], reach[row]); });
    } else {
      run([&](int64_t row) { return curve.at(h[row], kind == kTanh ? reach[row] : T(1)); });
    }
  }

  template <bool scale, bool keep, class Bend>
  static void over_line(const Bend& bend_at, const T* h, const T* before, int64_t count, T* values,
                        T* scaled, T* steps) {
#pragma omp simd
    for (int64_t row = 0; row < count; ++row) {
      const Point<T> point = bend_at(row);
      values[row] = point.value;
      if constexpr (keep) steps[row] = point.slope;
      scaled[row] = scale ? point.slope * before[row] : point.slope;
    }
  }

  void finish(const Pass<T>& pass) const {
    const T* slopes = pass.slopes[stack_.last()];
    if (!slopes) return;
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

  // Values below a layer again, the gradients of its averages, of the log-slopes of the activation
  // below (into scaled) and of the slopes below that.
  void recompute(int64_t layer, const Pass<T>& pass, const T* grad_slope,
                 const StackGrads<T>& grads, T* values, T* scaled, T* grad_scaled,
                 T* grad_lower) const {
    const Curve<T, kind> curve{stack_.leak};
    const Shape& shape = stack_.layers[layer];
    const int64_t rows = pass.rows, width = shape.in_block, next = shape.out_block;
    at::parallel_for(0, stack_.features, 1, [&](int64_t begin, int64_t end) {
      for (int64_t feature = begin; feature < end; ++feature) {
        const bool wanted = pass.wants_slopes(feature);
        const T* slopes = wanted ? pass.slopes[layer - 1] : nullptr;
        const int64_t at = feature * width * rows;
        T nearest[kRowChunk], lift[kRowChunk];
        for (int64_t start = 0; start < rows; start += kRowChunk) {
          const int64_t count = std::min(kRowChunk, rows - start);
          const bool safe = find_nearest<false>(pass.hidden[layer - 1] + at + start, nullptr,
                                                width, rows, count, nearest, lift);
          for (int64_t unit = 0; unit < width; ++unit) {
            const int64_t line = at + unit * rows + start;
            bend_line(curve, pass.hidden[layer - 1] + line, slopes ? slopes + line : nullptr,
                      safe ? lift : nearest, safe, count, values + line, scaled + line,
                      slopes ? grad_lower + line : nullptr);
          }
        }
        if (!wanted) {
          std::fill_n(scaled + at, width * rows, T(0));
          continue;
        }
        if (pass.context.scales()) {
          for (int64_t unit = feature * width; unit < (feature + 1) * width; ++unit) {
            const T* scale = pass.context.column_scale(shape) + unit * pass.context.stride;
            scale_line(scale, rows, scaled + unit * rows);
            scale_line(scale, rows, grad_lower + unit * rows);
          }
        }
        const T* upper = grad_slope + feature * next * rows;
        const int64_t block =
            transform_ * stack_.layout.averages + shape.average(feature * next);
        product(false, true, next, width, rows, upper, rows, scaled + at, rows, grads.add,
                grads.averages + block, width);
        product(true, false, width, rows, next, stack_.averages(layer, transform_, feature),
                width, upper, rows, false, grad_scaled + at, rows);
        multiply_by(grad_scaled + at, width * rows, scaled + at, slopes ? grad_lower + at : nullptr);
      }
    });
  }

  static void multiply_by(const T* arrived, int64_t units, T* of_log, T* of_lower) {
    if (of_lower) {
#pragma omp simd
      for (int64_t unit = 0; unit < units; ++unit) {
        of_log[unit] *= arrived[unit];
        of_lower[unit] *= arrived[unit];
      }
    } else {
#pragma omp simd
      for (int64_t unit = 0; unit < units; ++unit) of_log[unit] *= arrived[unit];
    }
  }

  // Gradients of what a context gives to a layer's outputs; then those of the outputs and of
  // their slopes go below its row scales.
  void pull_back_context(int64_t layer, const Pass<T>& pass, const Context<T>& grads, T* grad,
                         T* grad_slope) const {
    const Shape& shape = stack_.layers[layer];
    const Context<const T>& context = pass.context;
    const int64_t rows = pass.rows;
    const T* h = layer == stack_.last() ? pass.outputs : pass.hidden[layer];
    const T* slopes = pass.slopes[layer];
    at::parallel_for(0, shape.rows(), 16, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        T *line = grad + unit * rows, *of_slope = grad_slope + unit * rows;
        std::copy_n(line, rows, grads.bias(shape) + unit * grads.stride);
        if (!context.scales()) continue;
        const T* scale = context.row_scale(shape) + unit * context.stride;
        const T* bias = context.bias(shape) + unit * context.stride;
        const T *value = h + unit * rows, *slope = slopes + unit * rows;
        T* found = grads.row_scale(shape) + unit * grads.stride;
#pragma omp simd
        for (int64_t row = 0; row < rows; ++row) {
          const T of_log = line[row] * (value[row] - bias[row]) + of_slope[row] * slope[row];
          found[row] = of_log / scale[row];
          line[row] *= scale[row];
          of_slope[row] *= scale[row];
        }
      }
    });
  }

  // Gradients of the column scales of a layer, given those of its scaled inputs, which become
  // those of the inputs. `of_log` holds the gradients of the log-slopes of scaled inputs; below
  // the first layer, whose inputs have slope one, those of its outputs' slopes take their place.
  void pull_back_columns(int64_t layer, const Pass<T>& pass, const T* input, const T* of_log,
                         const T* grad_slope, const Context<T>& grads, T* below) const {
    const Shape& shape = stack_.layers[layer];
    const Context<const T>& context = pass.context;
    const int64_t rows = pass.rows;
    at::parallel_for(0, shape.columns(), 16, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const T *value = input + unit * rows, *log = of_log + unit * rows;
        const T* scale = context.column_scale(shape) + unit * context.stride;
        T *line = below + unit * rows, *found = grads.column_scale(shape) + unit * grads.stride;
        for (int64_t row = 0; row < rows; ++row) found[row] = line[row] * value[row];
        if (of_log) {
#pragma omp simd
          for (int64_t row = 0; row < rows; ++row) found[row] += log[row] / scale[row];
        } else {
          for (int64_t out = unit * shape.out_block; out < (unit + 1) * shape.out_block; ++out) {
            const T* slope = grad_slope + out * rows;
#pragma omp simd
            for (int64_t row = 0; row < rows; ++row) found[row] += slope[row];
          }
        }
        scale_line(scale, rows, line);
      }
    });
  }

  // Gradients of a layer's matrix, bias and input.
  void pull_back(int64_t layer, const T* input, const T* grad, T* grad_input,
                 const StackGrads<T>& grads, int64_t rows) const {
    const Shape& shape = stack_.layers[layer];
    const T* matrix = stack_.matrix(layer, transform_);
    T* grad_weight = grads.matrices + transform_ * stack_.layout.weights + shape.first_weight;
    bool add = false;
    over_bands(shape, [&](int64_t first, int64_t count, int64_t columns) {
      const int64_t at = first * shape.columns();
      product(true, false, columns, rows, count, matrix + at, shape.columns(),
              grad + first * rows, rows, add, grad_input, rows);
      product(false, true, count, columns, rows, grad + first * rows, rows, input, rows, grads.add,
              grad_weight + at, shape.columns());
      add = true;
    });
    if (grads.context.biases) return;  // each row has its own
    T* bias = grads.biases + transform_ * stack_.layout.rows + shape.first_row;
    at::parallel_for(0, shape.rows(), 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T total = 0;
#pragma omp simd reduction(+ : total)
        for (int64_t column = 0; column < rows; ++column) total += grad[row * rows + column];
        bias[row] = grads.add ? bias[row] + total : total;
      }
    });
  }

  // What intervals send to the inputs of the activation below a layer.
  void add_arrived(int64_t layer, const Pass<T>& pass, T* grad_h) const {
    const int64_t size = stack_.layers[layer].in_block * pass.rows;
    at::parallel_for(0, stack_.features, 1, [&](int64_t begin, int64_t end) {
      for (int64_t feature = begin; feature < end; ++feature) {
        if (!pass.wide[feature]) continue;
        const T* from = pass.arrived[layer - 1] + feature * size;
        T* to = grad_h + feature * size;
#pragma omp simd
        for (int64_t unit = 0; unit < size; ++unit) to[unit] += from[unit];
      }
    });
  }

  // Through the activation below a layer, in place.
  void bend_back(int64_t layer, const Pass<T>& pass, const T* values, const T* grad_log,
                 T* grad_h) const {
    const Curve<T, kind> curve{stack_.leak};
    const int64_t units = stack_.layers[layer].columns() * pass.rows;
    const T* h = pass.hidden[layer - 1];
    at::parallel_for(0, units, 4096, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t unit = begin; unit < end; ++unit) {
        grad_h[unit] = curve.pull_back(h[unit], values[unit], grad_h[unit], grad_log[unit]);
      }
    });
  }
};

}  // namespace bnaf

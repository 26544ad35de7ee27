// The inverse of a stack of block networks, feature by feature.
//
// Given the features before it, a feature is an increasing function of one unknown per row.
// Newton's iteration within a bracket solves many rows side by side, one in each lane of a vector;
// a lane whose row is done takes the next row, so that no row waits for another.
#pragma once

#include <memory>

#include "passes.h"

namespace bnaf {

constexpr int64_t kInverseBlock = 256;   // rows that one thread inverts at once
constexpr int64_t kInverseUnits = 48;    // units whose sums over earlier features are made at once
constexpr int64_t kMaxIterations = 200;  // of one row in one feature

template <class T>
constexpr T kTolerance = sizeof(T) == 4 ? T(1e-6) : T(1e-13);  // relative, of the output

template <class T>
constexpr int64_t kLanes = 128 / sizeof(T);

// One feature of a network: what is left of each layer when earlier features are known.
template <class T>
struct FeatureLayer {
  const T* block;  // (out, in), rows `stride` apart
  int64_t stride, in, out;
  T* known;  // (out, rows): bias and what earlier features contribute
  const T *row_scales, *column_scales;  // (out, rows) and (in, rows) of a context, or null
  int64_t distance;  // from a unit's scales to the next's
};

// Products of a small block with lanes: h = scale * block y + known, and d = scale * block s; no
// scale counts as one.
template <class T, bool with_slope>
inline void block_product(const FeatureLayer<T>& layer, const T* known, const T* scale, const T* y,
                          const T* s, T* h, T* d) {
  constexpr int64_t lanes = kLanes<T>, tile = 4;
  for (int64_t first = 0; first < layer.out; first += tile) {
    const int64_t count = std::min(tile, layer.out - first);
    T value[tile][lanes] = {}, slope[tile][lanes] = {};
    const T* weights[tile];
    for (int64_t row = 0; row < tile; ++row) {
      weights[row] = layer.block + std::min(first + row, layer.out - 1) * layer.stride;
    }
    for (int64_t k = 0; k < layer.in; ++k) {
#pragma GCC unroll 4
      for (int64_t row = 0; row < tile; ++row) {
        const T weight = weights[row][k];
#pragma omp simd
        for (int64_t lane = 0; lane < lanes; ++lane) {
          value[row][lane] += weight * y[k * lanes + lane];
          if constexpr (with_slope) slope[row][lane] += weight * s[k * lanes + lane];
        }
      }
    }
    for (int64_t row = 0; row < count; ++row) {
      const int64_t at = (first + row) * lanes;
      if (scale) {
        scale_line(scale + at, lanes, value[row]);
        if constexpr (with_slope) scale_line(scale + at, lanes, slope[row]);
      }
#pragma omp simd
      for (int64_t lane = 0; lane < lanes; ++lane) {
        h[at + lane] = value[row][lane] + known[at + lane];
        if constexpr (with_slope) d[at + lane] = slope[row][lane];
      }
    }
  }
}

template <class T, Activation kind>
class FeatureSolver {
 public:
  static constexpr int64_t lanes = kLanes<T>;

  FeatureSolver(int64_t layers, int64_t width, T leak, bool scales) : curve_{leak} {
    const int64_t size = width * lanes;
    storage_ = buffer<T>((4 + (scales ? 3 : 1) * layers) * size);
    T* free = storage_.template data_ptr<T>();
    values_ = free, slopes_ = free + size, sums_ = free + 2 * size, rates_ = free + 3 * size;
    for (int64_t layer = 0; layer < layers; ++layer) {
      known_.push_back(free + (4 + layer) * size);
      row_scales_.push_back(scales ? free + (4 + layers + layer) * size : nullptr);
      column_scales_.push_back(scales ? free + (4 + 2 * layers + layer) * size : nullptr);
    }
  }

  // Solve share * f(x) + carry * x = target for every row; `ended` is false where it did not.
  // Without `strict`, rows may be left one Newton step after the error promised to be small
  // enough; `guessed` tells which.
  void solve(const std::vector<FeatureLayer<T>>& layers, T share, T carry, const T* target,
             int64_t rows, int64_t stride, bool strict, T* x, bool* guessed, bool* ended) {
    Lanes state;
    int64_t next = 0, active = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      load(layers, state, lane, std::min(next, rows - 1), target, stride);
      if (next < rows) ++active;
      state.row[lane] = next < rows ? next++ : -1;
    }
    while (active > 0) {
      evaluate(layers, share, carry, state);
      advance(state, strict);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const bool stuck = ++state.turns[lane] >= kMaxIterations;
        if (state.row[lane] < 0 || !(state.done[lane] || stuck)) continue;
        x[state.row[lane]] = state.settled[lane];
        guessed[state.row[lane]] = state.guessed[lane];
        if (!state.done[lane]) ended[state.row[lane]] = false;
        if (next < rows) {
          load(layers, state, lane, next, target, stride);
          state.row[lane] = next++;
        } else {
          state.row[lane] = -1;
          --active;
        }
      }
    }
  }

  // Values of the hidden units at x, into the inputs of the layers above, and of the output.
  void settle(const std::vector<FeatureLayer<T>>& layers, const T* x, int64_t rows,
              int64_t stride, const std::vector<T*>& inputs, T* outputs) {
    for (int64_t start = 0; start < rows; start += lanes) {
      const int64_t count = std::min(lanes, rows - start);
      fetch(x, rows, 1, start, count, values_);
      fetch_columns(layers, 0, start, count);
      scale_values(layers, 0);
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        sum_layer(layers, layer, start, count, stride);
        if (layer + 1 == layers.size()) break;
        for (int64_t unit = 0; unit < layers[layer].out; ++unit) {
          std::copy_n(values_ + unit * lanes, count, inputs[layer + 1] + unit * stride + start);
        }
      }
      std::copy_n(sums_, count, outputs + start);
    }
  }

  // The end of the feature's range that the hidden units reach at -1 or at 1.
  void find_end(const std::vector<FeatureLayer<T>>& layers, T end, int64_t rows, int64_t stride,
                T* ends) {
    for (int64_t start = 0; start < rows; start += lanes) {
      const int64_t count = std::min(lanes, rows - start);
      std::fill_n(values_, layers[0].out * lanes, end);
      fetch_columns(layers, 1, start, count);
      scale_values(layers, 1);
      for (size_t layer = 1; layer < layers.size(); ++layer) {
        sum_layer(layers, layer, start, count, stride);
      }
      std::copy_n(sums_, count, ends + start);
    }
  }

 private:
  struct Lanes {
    T x[lanes], target[lanes], low[lanes], high[lanes], reach[lanes], previous[lanes];
    T value[lanes], slope[lanes], settled[lanes];
    int64_t row[lanes], turns[lanes];
    bool done[lanes], smooth[lanes], guessed[lanes];
  };

  Curve<T, kind> curve_;
  Tensor storage_;
  T *values_, *slopes_, *sums_, *rates_;
  std::vector<T*> known_, row_scales_, column_scales_;  // lanes of each layer

  // Lanes of rows from `start` on; those beyond the last repeat it.
  static void fetch(const T* from, int64_t distance, int64_t units, int64_t start, int64_t count,
                    T* to) {
    for (int64_t unit = 0; unit < units; ++unit) {
      const T* line = from + unit * distance + start;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        to[unit * lanes + lane] = line[std::min(lane, count - 1)];
      }
    }
  }

  void fetch_columns(const std::vector<FeatureLayer<T>>& layers, size_t layer, int64_t start,
                     int64_t count) {
    const FeatureLayer<T>& of = layers[layer];
    if (!of.column_scales) return;
    fetch(of.column_scales, of.distance, of.in, start, count, column_scales_[layer]);
  }

  // What enters a layer, and its slopes, times the column scales of the layer.
  void scale_values(const std::vector<FeatureLayer<T>>& layers, size_t layer) {
    if (layers[layer].column_scales) {
      scale_line(column_scales_[layer], layers[layer].in * lanes, values_);
    }
  }

  void load(const std::vector<FeatureLayer<T>>& layers, Lanes& state, int64_t lane, int64_t row,
            const T* target, int64_t stride) {
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      for (int64_t unit = 0; unit < layers[layer].out; ++unit) {
        known_[layer][unit * lanes + lane] = layers[layer].known[unit * stride + row];
      }
      const FeatureLayer<T>& of = layers[layer];
      if (!of.row_scales) continue;
      for (int64_t unit = 0; unit < of.out; ++unit) {
        row_scales_[layer][unit * lanes + lane] = of.row_scales[unit * of.distance + row];
      }
      for (int64_t unit = 0; unit < of.in; ++unit) {
        column_scales_[layer][unit * lanes + lane] = of.column_scales[unit * of.distance + row];
      }
    }
    constexpr T infinity = std::numeric_limits<T>::infinity();
    state.target[lane] = state.x[lane] = target[row];
    state.low[lane] = -infinity, state.high[lane] = state.previous[lane] = infinity;
    state.reach[lane] = 1, state.turns[lane] = 0, state.smooth[lane] = false;
  }

  // sums = layer(values) and values = activation(sums), as they enter the next layer, for rows
  // from `start` on.
  void sum_layer(const std::vector<FeatureLayer<T>>& layers, size_t layer, int64_t start,
                 int64_t count, int64_t stride) {
    const FeatureLayer<T>& of = layers[layer];
    fetch(of.known, stride, of.out, start, count, known_[layer]);
    if (of.row_scales) {
      fetch(of.row_scales, of.distance, of.out, start, count, row_scales_[layer]);
    }
    block_product<T, false>(of, known_[layer], row_scales_[layer], values_, nullptr, sums_,
                            nullptr);
    const int64_t total = of.out * lanes;
#pragma omp simd
    for (int64_t index = 0; index < total; ++index) values_[index] = curve_.value(sums_[index]);
    if (layer + 1 == layers.size()) return;
    fetch_columns(layers, layer + 1, start, count);
    scale_values(layers, layer + 1);
  }

  void evaluate(const std::vector<FeatureLayer<T>>& layers, T share, T carry, Lanes& state) {
    std::copy_n(state.x, lanes, values_);
    std::fill_n(slopes_, lanes, T(1));
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      scale_values(layers, layer);
      if (layers[layer].column_scales) {
        scale_line(column_scales_[layer], layers[layer].in * lanes, slopes_);
      }
      block_product<T, true>(layers[layer], known_[layer], row_scales_[layer], values_, slopes_,
                             sums_, rates_);
      if (layer + 1 == layers.size()) break;
      const int64_t total = layers[layer].out * lanes;
#pragma omp simd
      for (int64_t index = 0; index < total; ++index) {
        const Point<T> point = curve_.at(sums_[index], T(1));
        values_[index] = point.value;
        slopes_[index] = rates_[index] * point.slope;
      }
    }
#pragma omp simd
    for (int64_t lane = 0; lane < lanes; ++lane) {
      state.value[lane] = share * sums_[lane] + carry * state.x[lane];
      state.slope[lane] = share * rates_[lane] + carry;
    }
  }

  // One step of every lane. A Newton step that leaves the bracket, or that has not halved the
  // error, gives way to bisection or, where the bracket is open, to a step twice as long.
  static void advance(Lanes& state, bool strict) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    constexpr T spacing = std::numeric_limits<T>::epsilon(), tiny = std::numeric_limits<T>::min();
#pragma omp simd
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const T x = state.x[lane], target = state.target[lane];
      const T error = state.value[lane] - target, size = std::abs(error);
      const bool up = error < 0;
      const T low = up ? x : state.low[lane], high = error > 0 ? x : state.high[lane];
      const T newton = x - error / state.slope[lane], length = std::abs(newton - x);
      const T previous = state.previous[lane], reach = state.reach[lane];
      const bool open = up ? high == infinity : low == -infinity;
      const bool far = !(length <= reach), slow = size > previous / 2;
      const bool inside = newton > low && newton < high;
      const bool bisect = (!open) & ((!inside) | slow), leap = open & far;
      const T middle = low + (high - low) / 2;
      T proposal = leap ? x + (up ? reach : -reach) : newton;
      proposal = bisect ? middle : proposal;
      const T grain = spacing * std::max(std::abs(x), tiny);
      const T allowed = kTolerance<T> * std::max(std::abs(target), T(1));
      // after a Newton step from e to e' the next leaves about e'^3 / e^2
      const bool nearly = (!strict) & state.smooth[lane] & (size < previous / 64) &
                          (size * (size / previous) * (size / previous) <= allowed / 16);
      const bool still = std::abs(proposal - x) <= grain || high - low <= 2 * grain;
      const bool near = length <= T(1e-3) * std::max(std::abs(x), T(1));
      T settled = newton < low ? low : newton;
      settled = settled > high ? high : settled;
      const bool sure = (size <= allowed) | still;
      state.guessed[lane] = nearly & near & !sure;
      state.done[lane] = sure | (nearly & near);
      state.settled[lane] = near ? settled : x;  // in flat places Newton leads away
      state.smooth[lane] = !(bisect | leap);
      state.low[lane] = low, state.high[lane] = high, state.previous[lane] = size;
      state.reach[lane] = open ? 2 * reach : reach;
      state.x[lane] = proposal;
    }
  }
};

// Inverts one block of rows through one network of the stack.
template <class T, Activation kind>
class NetworkInverse {
 public:
  explicit NetworkInverse(const Stack<T>& stack)
      : stack_(stack),
        solver_(stack.layers.size(), widest_block(stack), stack.leak, stack.contexts.scales()) {
    for (const auto& layer : stack.layers) {
      inputs_.push_back(buffer<T>(layer.columns() * kInverseBlock));
      known_.push_back(buffer<T>(layer.rows() * kInverseBlock));
    }
  }

  // Replace targets (features, rows) by their pre-images.
  void solve(int64_t transform, const Context<const T>& context, T* targets, int64_t rows,
             bool* inside, bool* ended) {
    context_ = context;
    const int64_t kind_of = stack_.residuals[transform], features = stack_.features;
    const T gate = kind_of == kGated ? stack_.gates[transform] : T(0);
    const T share = kind_of == kGated ? sigmoid(gate) : T(1);
    const T carry = kind_of == kGated ? sigmoid(-gate) : T(kind_of == kNormal);
    const bool bounded = kind == kTanh && kind_of == kNone && stack_.last() > 0;
    const int64_t band = std::max<int64_t>(1, kInverseUnits / widest_block(stack_));
    for (int64_t start = 0; start < features; start += band) {
      const int64_t end = std::min(features, start + band);
      gather(transform, start, end, 0, start, rows);
      for (int64_t feature = start; feature < end; ++feature) {
        if (feature > start) gather(transform, feature, feature + 1, start, feature, rows);
        T* target = targets + feature * rows;
        solve_feature(transform, feature, share, carry, bounded, target, rows, inside, ended);
      }
    }
  }

 private:
  const Stack<T>& stack_;
  FeatureSolver<T, kind> solver_;
  Tensors inputs_, known_;
  Context<const T> context_;

  static int64_t widest_block(const Stack<T>& stack) {
    int64_t width = 1;
    for (const auto& layer : stack.layers) width = std::max(width, layer.out_block);
    return width;
  }

  // Sums over features [from, to) for the units of features [start, end); the first sums begin
  // with the bias, unless scales come in between.
  void gather(int64_t transform, int64_t start, int64_t end, int64_t from, int64_t to,
              int64_t rows) {
    for (int64_t index = 0; index <= stack_.last(); ++index) {
      const Shape& shape = stack_.layers[index];
      const int64_t first = start * shape.out_block, count = (end - start) * shape.out_block;
      T* known = known_[index].template data_ptr<T>() + first * rows;
      if (from == 0) {
        const T* bias = stack_.bias(index, transform) + first;
        for (int64_t unit = 0; unit < count; ++unit) {
          T* line = known + unit * rows;
          if (context_.biases && !context_.scales()) {
            std::copy_n(context_.bias(shape) + (first + unit) * context_.stride, rows, line);
          } else {
            std::fill_n(line, rows, context_.scales() ? T(0) : bias[unit]);
          }
        }
      }
      if (to == from) continue;
      const T* matrix = stack_.matrix(index, transform) + first * shape.columns();
      const T* input = inputs_[index].template data_ptr<T>();
      product(false, false, count, rows, (to - from) * shape.in_block,
              matrix + from * shape.in_block, shape.columns(),
              input + from * shape.in_block * rows, rows, true, known, rows);
    }
  }

  void solve_feature(int64_t transform, int64_t feature, T share, T carry, bool bounded, T* target,
                     int64_t rows, bool* inside, bool* ended) {
    std::vector<FeatureLayer<T>> layers;
    std::vector<T*> inputs;
    for (int64_t index = 0; index <= stack_.last(); ++index) {
      const Shape& shape = stack_.layers[index];
      const int64_t row = feature * shape.out_block, column = feature * shape.in_block;
      layers.push_back({stack_.matrix(index, transform) + row * shape.columns() + column,
                        shape.columns(), shape.in_block, shape.out_block,
                        known_[index].template data_ptr<T>() + row * rows, nullptr, nullptr, 0});
      if (context_.scales()) settle_known(shape, row, column, rows, layers.back());
      inputs.push_back(inputs_[index].template data_ptr<T>() + column * rows);
    }
    T low[kInverseBlock], high[kInverseBlock], x[kInverseBlock];
    if (bounded) {
      solver_.find_end(layers, T(-1), rows, rows, low);
      solver_.find_end(layers, T(1), rows, rows, high);
    }
    for (int64_t row = 0; row < rows; ++row) {
      inside[row] = inside[row] && std::isfinite(target[row]) &&
                    (!bounded || (target[row] > low[row] && target[row] < high[row]));
      // a row without pre-image goes on from the middle of the range; the caller drops it
      if (!inside[row]) target[row] = bounded ? low[row] / 2 + high[row] / 2 : T(0);
    }
    bool guessed[kInverseBlock];
    for (const bool strict : {false, true}) {
      solver_.solve(layers, share, carry, target, rows, rows, strict, x, guessed, ended);
      solver_.settle(layers, x, rows, rows, inputs, low);
      bool good = true;
      for (int64_t row = 0; row < rows; ++row) {
        const T error = std::abs(share * low[row] + carry * x[row] - target[row]);
        const T allowed = 10 * kTolerance<T> * std::max(std::abs(target[row]), T(1));
        good = good && (!guessed[row] || error <= allowed);
      }
      if (good) break;
    }
    std::copy_n(x, rows, target);
    std::copy_n(x, rows, inputs[0]);
    if (context_.scales()) scale_line(layers[0].column_scales, rows, inputs[0]);
  }

  // Scales of a feature's units, and the sums over earlier features as they leave them.
  void settle_known(const Shape& shape, int64_t row, int64_t column, int64_t rows,
                    FeatureLayer<T>& layer) {
    const int64_t stride = context_.stride;
    layer.row_scales = context_.row_scale(shape) + row * stride;
    layer.column_scales = context_.column_scale(shape) + column * stride;
    layer.distance = stride;
    modulate(context_.bias(shape) + row * stride, layer.row_scales, stride, shape.out_block, rows,
             rows, layer.known);
  }
};

template <class T, Activation kind>
std::tuple<Tensor, Tensor, Tensor> invert(const Stack<T>& stack, const Tensor& y) {
  const int64_t rows = y.size(0), features = stack.features;
  Tensor x = at::empty_like(y);
  Tensor inside = at::ones({rows}, y.options().dtype(at::kBool)), ended = at::ones_like(inside);
  const int64_t share = (rows + at::get_num_threads() - 1) / at::get_num_threads();
  const int64_t block = std::max<int64_t>(1, std::min(kInverseBlock, share));
  const int64_t blocks = (rows + block - 1) / block;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    NetworkInverse<T, kind> network(stack);
    Tensor scratch = buffer<T>(2 * features * block + stack.contexts.room(block));
    T *targets = scratch.data_ptr<T>(), *sorted = targets + features * block;
    T* free = sorted + features * block;
    for (int64_t index = begin; index < end; ++index) {
      const int64_t start = index * block, count = std::min(block, rows - start);
      bool* reached = inside.data_ptr<bool>() + start;
      transpose(y.const_data_ptr<T>() + start * features, count, features, features, targets,
                count);
      for (int64_t transform = stack.transforms - 1; transform >= 0; --transform) {
        const Context<const T> context = stack.contexts.of(transform, start, count, free);
        network.solve(transform, context, targets, count, reached,
                      ended.data_ptr<bool>() + start);
        if (transform == 0) break;
        for (int64_t feature = 0; feature < features; ++feature) {
          std::copy_n(targets + feature * count, count,
                      sorted + stack.source(transform, feature) * count);
        }
        std::swap(targets, sorted);
      }
      transpose(targets, features, count, count, x.data_ptr<T>() + start * features, features);
    }
  });
  return {x, inside, ended};
}

}  // namespace bnaf

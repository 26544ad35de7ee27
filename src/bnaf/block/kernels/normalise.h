// From packed raw weights to normalised matrices, row by row, with the gradient.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <vector>

#include "arithmetic.h"
#include "memory.h"

namespace bnaf {

using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr double kLargestExponent = 80.0;

// Sizes of one block-triangular layer, and where its parts begin in the storage of a network.
struct Shape {
  int64_t features, in_block, out_block;
  int64_t first_entry, first_row, first_column, first_weight, first_average;
  int64_t rows() const { return features * out_block; }
  int64_t columns() const { return features * in_block; }
  int64_t entries() const { return features * (features + 1) / 2 * in_block * out_block; }
  // where a row begins in packed storage, and how many entries it has off the diagonal
  int64_t entry(int64_t row) const {
    const int64_t feature = row / out_block;
    const int64_t before = feature * (feature + 1) / 2 * out_block;
    return first_entry + (before + (row % out_block) * (feature + 1)) * in_block;
  }
  int64_t below(int64_t row) const { return row / out_block * in_block; }
  int64_t weight(int64_t row) const { return first_weight + row * columns(); }
  int64_t average(int64_t row) const { return first_average + row * in_block; }
};

// Layers of a stack of networks of one shape; each network's tensors are one row of storage.
struct Layout {
  int64_t transforms, features, entries = 0, rows = 0, columns = 0, weights = 0, averages = 0;
  std::vector<Shape> layers;

  Layout(int64_t transforms, int64_t features, at::IntArrayRef blocks)
      : transforms(transforms), features(features) {
    for (size_t layer = 0; layer + 1 < blocks.size(); ++layer) {
      layers.push_back({features, blocks[layer], blocks[layer + 1], entries, rows, columns, weights,
                        averages});
      const Shape& shape = layers.back();
      entries += shape.entries(), rows += shape.rows(), columns += shape.columns();
      weights += shape.rows() * shape.columns(), averages += shape.rows() * shape.in_block;
    }
  }
  int64_t last() const { return static_cast<int64_t>(layers.size()) - 1; }

  // What tells its matrices from those of another layout; `kind` tells weights from gradients.
  Pool::Key key(int64_t kind, size_t itemsize) const {
    Pool::Key key{kind, static_cast<int64_t>(itemsize), transforms, features};
    for (const Shape& shape : layers) key.push_back(shape.out_block);
    return key;
  }
};

// Run over every row of a layer, in every transform.
template <class Body>
void over_rows(const Layout& layout, const Shape& shape, const Body& body) {
  const int64_t rows = shape.rows(), total = layout.transforms * rows;
  const int64_t grain = std::max<int64_t>(1, 8192 / shape.columns());
  at::parallel_for(0, total, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) body(index / rows, index % rows);
  });
}

template <class T>
void normalise_layer(const Layout& layout, const Shape& shape, const T* packed, const T* log_gain,
                     const T* incoming, T* matrix, T* averages, T* outgoing, T* log_norm) {
  const int64_t in = shape.in_block, columns = shape.columns();
  over_rows(layout, shape, [&](int64_t transform, int64_t row) {
    const int64_t below = shape.below(row);
    const int64_t index = transform * layout.rows + shape.first_row + row;
    const T* raw = packed + transform * layout.entries + shape.entry(row);
    const T* diagonal = raw + below;
    const T* arriving = incoming + transform * columns + below;
    T* out = matrix + transform * layout.weights + shape.weight(row);
    T* average = averages + transform * layout.averages + shape.average(row);
    T squares = 0, largest = diagonal[0], peak = diagonal[0] + arriving[0];
#pragma omp simd reduction(+ : squares)
    for (int64_t k = 0; k < below; ++k) squares += raw[k] * raw[k];
    for (int64_t k = 0; k < in; ++k) {
      largest = std::max(largest, diagonal[k]);
      peak = std::max(peak, diagonal[k] + arriving[k]);
    }
    const T log_squares = squares > 0 ? std::log(squares) : -std::numeric_limits<T>::infinity();
    const T shift = std::max(2 * largest, log_squares);
    T norm = squares > 0 ? std::exp(log_squares - shift) : T(0), total = 0;
#pragma omp simd reduction(+ : norm, total)
    for (int64_t k = 0; k < in; ++k) {
      norm += exponential(2 * diagonal[k] - shift);
      const T share = exponential(diagonal[k] + arriving[k] - peak);
      average[k] = share;
      total += share;
    }
    log_norm[index] = T(0.5) * (shift + std::log(norm));
    const T log_scale = log_gain[index] - log_norm[index];
    const T scale = std::exp(std::min(log_scale, T(kLargestExponent))), inverse = 1 / total;
#pragma omp simd
    for (int64_t k = 0; k < below; ++k) out[k] = raw[k] * scale;
#pragma omp simd
    for (int64_t k = 0; k < in; ++k) {
      out[below + k] = exponential(diagonal[k] + log_scale);
      average[k] *= inverse;
    }
    outgoing[transform * shape.rows() + row] = peak + std::log(total) + log_scale;
  });
}

template <class T>
void pull_back_layer(const Layout& layout, const Shape& shape, const T* packed, const T* log_gain,
                     const T* matrix, const T* averages, const T* log_norm, const T* grad_matrix,
                     const T* grad_averages, const T* grad_outgoing, T* grad_packed, T* grad_gain,
                     T* grad_arriving) {
  const int64_t in = shape.in_block;
  over_rows(layout, shape, [&](int64_t transform, int64_t row) {
    const int64_t below = shape.below(row);
    const int64_t index = transform * layout.rows + shape.first_row + row;
    const int64_t start = transform * layout.entries + shape.entry(row);
    const int64_t line = transform * layout.weights + shape.weight(row);
    const int64_t block = transform * layout.averages + shape.average(row);
    const T *raw = packed + start, *diagonal = raw + below;
    const T *weight = matrix + line + below, *grad_row = grad_matrix + line;
    const T *average = averages + block, *grad_average = grad_averages + block;
    T *grad_raw = grad_packed + start, *grad_in = grad_arriving + (transform * shape.rows() + row) * in;
    const T arrived = grad_outgoing[transform * shape.rows() + row];
    const bool averaged = shape.first_row > 0;  // the averages of the first layer are ones
    const T scale = std::exp(std::min(log_gain[index] - log_norm[index], T(kLargestExponent)));
    T through_rows = 0, through_blocks = 0, leftover = arrived;
#pragma omp simd reduction(+ : through_rows)
    for (int64_t k = 0; k < below; ++k) through_rows += grad_row[k] * raw[k];
    for (int64_t k = 0; k < in; ++k) {
      through_blocks += grad_row[below + k] * weight[k];
      if (averaged) leftover -= average[k] * grad_average[k];
    }
    const T gain = through_rows * scale + through_blocks + arrived;
    // d log|w| / dv is v / |w|^2 off the diagonal blocks and e^{2v} / |w|^2 on them
    const T pull = gain * std::exp(std::min(-2 * log_norm[index], T(kLargestExponent)));
#pragma omp simd
    for (int64_t k = 0; k < below; ++k) grad_raw[k] = grad_row[k] * scale - raw[k] * pull;
    for (int64_t k = 0; k < in; ++k) {
      const T of_average = averaged ? grad_average[k] : T(0);
      grad_in[k] = average[k] * (of_average + leftover);
      grad_raw[below + k] = grad_row[below + k] * weight[k] + grad_in[k] -
                            gain * exponential(2 * (diagonal[k] - log_norm[index]));
    }
    grad_gain[index] = gain;
  });
}

// Returns matrices, averages, log-norms and the log-slopes of the outputs.
template <class T>
Tensors normalise(const Tensor& packed, const Tensor& log_gain, at::IntArrayRef blocks,
                  int64_t features) {
  const Layout layout(packed.size(0), features, blocks);
  const auto& like = packed.options();
  Tensor matrices = triangle_pool().take({layout.transforms, layout.weights}, like,
                                         layout.key(0, sizeof(T)));
  Tensor averages = at::empty({layout.transforms, layout.averages}, like);
  Tensor log_norm = at::empty_like(log_gain);
  Tensor slope = at::zeros({layout.transforms, features}, like);
  for (const Shape& shape : layout.layers) {
    Tensor outgoing = at::empty({layout.transforms, shape.rows()}, like);
    normalise_layer(layout, shape, packed.const_data_ptr<T>(), log_gain.const_data_ptr<T>(),
                    slope.const_data_ptr<T>(), matrices.data_ptr<T>(), averages.data_ptr<T>(),
                    outgoing.data_ptr<T>(), log_norm.data_ptr<T>());
    slope = outgoing;
  }
  return {matrices, averages, log_norm, slope};
}

// Gradients of packed weights and log-gains; `results` are those of normalise, `grads` those of
// matrices, averages and log-slopes.
template <class T>
Tensors pull_back_normalise(const Tensor& packed, const Tensor& log_gain, at::IntArrayRef blocks,
                            int64_t features, const Tensors& results, const Tensors& grads) {
  const Layout layout(packed.size(0), features, blocks);
  Tensor grad_packed = at::empty_like(packed), grad_gain = at::empty_like(log_gain);
  Tensor grad_slope = grads[2];
  for (int64_t index = layout.last(); index >= 0; --index) {
    const Shape& shape = layout.layers[index];
    Tensor grad_in =
        at::empty({layout.transforms, features, shape.out_block, shape.in_block}, packed.options());
    pull_back_layer<T>(layout, shape, packed.const_data_ptr<T>(), log_gain.const_data_ptr<T>(),
                       results[0].const_data_ptr<T>(), results[1].const_data_ptr<T>(),
                       results[2].const_data_ptr<T>(), grads[0].const_data_ptr<T>(),
                       grads[1].const_data_ptr<T>(), grad_slope.const_data_ptr<T>(),
                       grad_packed.data_ptr<T>(), grad_gain.data_ptr<T>(), grad_in.data_ptr<T>());
    grad_slope = grad_in.sum(2);  // over the rows of each block
  }
  return {grad_packed, grad_gain};
}

}  // namespace bnaf

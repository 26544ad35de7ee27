// From packed raw weights to normalised matrices, row by row, with the gradient.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <vector>

#include "arithmetic.h"

namespace bnaf {

using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr double kLargestExponent = 80.0;

// Sizes of one block-triangular layer of a stack.
struct Shape {
  int64_t transforms, features, in_block, out_block;
  int64_t rows() const { return features * out_block; }
  int64_t columns() const { return features * in_block; }
  int64_t packed() const { return features * (features + 1) / 2 * in_block * out_block; }
  // where a row begins in packed storage, and how many entries it has off the diagonal
  int64_t offset(int64_t row) const {
    const int64_t feature = row / out_block;
    const int64_t before = feature * (feature + 1) / 2 * out_block;
    return (before + (row % out_block) * (feature + 1)) * in_block;
  }
  int64_t below(int64_t row) const { return row / out_block * in_block; }
};

inline Shape shape_of(const Tensor& averages) {
  return {averages.size(0), averages.size(1), averages.size(3), averages.size(2)};
}

// Run over every row of every transform.
template <class Body>
void over_rows(const Shape& shape, const Body& body) {
  const int64_t rows = shape.rows(), total = shape.transforms * rows;
  const int64_t grain = std::max<int64_t>(1, 8192 / shape.columns());
  at::parallel_for(0, total, grain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) body(index / rows, index % rows, index);
  });
}

template <class T>
void normalise_layer(const Shape& shape, const T* packed, const T* log_gain, const T* incoming,
                     T* matrix, T* averages, T* outgoing, T* log_norm) {
  const int64_t in = shape.in_block, columns = shape.columns();
  over_rows(shape, [&](int64_t transform, int64_t row, int64_t index) {
    const int64_t below = shape.below(row);
    const T* raw = packed + transform * shape.packed() + shape.offset(row);
    const T* diagonal = raw + below;
    const T* arriving = incoming + transform * columns + below;
    T* out = matrix + index * columns;
    T* average = averages + index * in;
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
    std::fill(out + below + in, out + columns, T(0));
    outgoing[index] = peak + std::log(total) + log_scale;
  });
}

template <class T>
void pull_back_layer(const Shape& shape, const T* packed, const T* log_gain, const T* matrix,
                     const T* averages, const T* log_norm, const T* grad_matrix,
                     const T* grad_averages, const T* grad_outgoing, T* grad_packed, T* grad_gain,
                     T* grad_arriving) {
  const int64_t in = shape.in_block, columns = shape.columns();
  over_rows(shape, [&](int64_t transform, int64_t row, int64_t index) {
    const int64_t below = shape.below(row), start = transform * shape.packed() + shape.offset(row);
    const T* raw = packed + start;
    const T* diagonal = raw + below;
    const T* weight = matrix + index * columns + below;
    const T* grad_row = grad_matrix + index * columns;
    const T* average = averages + index * in;
    const T* grad_average = grad_averages ? grad_averages + index * in : nullptr;
    T* grad_raw = grad_packed + start;
    T* grad_in = grad_arriving + index * in;
    const T scale = std::exp(std::min(log_gain[index] - log_norm[index], T(kLargestExponent)));
    T through_rows = 0, through_blocks = 0, leftover = grad_outgoing[index];
#pragma omp simd reduction(+ : through_rows)
    for (int64_t k = 0; k < below; ++k) through_rows += grad_row[k] * raw[k];
    for (int64_t k = 0; k < in; ++k) {
      through_blocks += grad_row[below + k] * weight[k];
      if (grad_average) leftover -= average[k] * grad_average[k];
    }
    const T gain = through_rows * scale + through_blocks + grad_outgoing[index];
    // d log|w| / dv is v / |w|^2 off the diagonal blocks and e^{2v} / |w|^2 on them
    const T pull = gain * std::exp(std::min(-2 * log_norm[index], T(kLargestExponent)));
#pragma omp simd
    for (int64_t k = 0; k < below; ++k) grad_raw[k] = grad_row[k] * scale - raw[k] * pull;
    for (int64_t k = 0; k < in; ++k) {
      const T of_average = grad_average ? grad_average[k] : T(0);
      grad_in[k] = average[k] * (of_average + leftover);
      grad_raw[below + k] = grad_row[below + k] * weight[k] + grad_in[k] -
                            gain * exponential(2 * (diagonal[k] - log_norm[index]));
    }
    grad_gain[index] = gain;
  });
}

// Returns, per layer, matrix, averages and log-norms; and the log-slopes of the outputs.
template <class T>
Tensors normalise(const Tensors& packed, const Tensors& log_gains, at::IntArrayRef blocks) {
  const int64_t transforms = log_gains[0].size(0), features = log_gains[0].size(1) / blocks[1];
  Tensors results;
  Tensor slope = at::zeros({transforms, features, 1}, packed[0].options());
  for (size_t layer = 0; layer < packed.size(); ++layer) {
    const Shape shape{transforms, features, blocks[layer], blocks[layer + 1]};
    const auto& like = packed[layer].options();
    Tensor matrix = at::empty({transforms, shape.rows(), shape.columns()}, like);
    Tensor averages = at::empty({transforms, features, shape.out_block, shape.in_block}, like);
    Tensor outgoing = at::empty({transforms, features, shape.out_block}, like);
    Tensor log_norm = at::empty({transforms, shape.rows()}, like);
    normalise_layer(shape, packed[layer].const_data_ptr<T>(),
                    log_gains[layer].const_data_ptr<T>(), slope.const_data_ptr<T>(),
                    matrix.data_ptr<T>(), averages.data_ptr<T>(), outgoing.data_ptr<T>(),
                    log_norm.data_ptr<T>());
    results.insert(results.end(), {matrix, averages, log_norm});
    slope = outgoing;
  }
  results.push_back(slope);
  return results;
}

// Gradients of packed weights and log-gains; `results` are those of normalise, `grads` those of
// each matrix and its averages (empty where there is none), and of the log-slopes.
template <class T>
Tensors pull_back_normalise(const Tensors& packed, const Tensors& log_gains,
                            const Tensors& results, const Tensors& grads) {
  Tensors found(2 * packed.size());
  Tensor grad_slope = grads.back();
  for (int64_t layer = static_cast<int64_t>(packed.size()) - 1; layer >= 0; --layer) {
    const Tensor& averages = results[3 * layer + 1];
    const Shape shape = shape_of(averages);
    Tensor grad_packed = at::empty_like(packed[layer]);
    Tensor grad_gain = at::empty_like(log_gains[layer]);
    Tensor grad_in = at::empty_like(averages);
    const Tensor& grad_averages = grads[2 * layer + 1];
    pull_back_layer<T>(shape, packed[layer].const_data_ptr<T>(),
                       log_gains[layer].const_data_ptr<T>(),
                       results[3 * layer].const_data_ptr<T>(), averages.const_data_ptr<T>(),
                       results[3 * layer + 2].const_data_ptr<T>(),
                       grads[2 * layer].const_data_ptr<T>(),
                       grad_averages.numel() ? grad_averages.const_data_ptr<T>() : nullptr,
                       grad_slope.const_data_ptr<T>(), grad_packed.data_ptr<T>(),
                       grad_gain.data_ptr<T>(), grad_in.data_ptr<T>());
    found[2 * layer] = grad_packed;
    found[2 * layer + 1] = grad_gain;
    grad_slope = grad_in.sum(2);  // over the rows of each block
  }
  return found;
}

}  // namespace bnaf

// What contexts do to the layers of a stack: y = row_scale * W (column_scale * x) + bias, with
// numbers of each row's own. They are laid out as hidden units are: one line of rows for each unit.
#pragma once

#include "normalise.h"

namespace bnaf {

// The numbers of one network for rows side by side, or their gradients; null where it has none.
template <class T>
struct Context {
  T *biases = nullptr, *row_scales = nullptr, *column_scales = nullptr;
  int64_t stride = 0;  // from a unit's line to the next

  bool scales() const { return row_scales != nullptr; }
  T* bias(const Shape& layer) const { return biases + layer.first_row * stride; }
  T* row_scale(const Shape& layer) const { return row_scales + layer.first_row * stride; }
  T* column_scale(const Shape& layer) const { return column_scales + layer.first_column * stride; }

  // The same from a row on.
  Context from(int64_t row) const {
    if (!biases) return {};
    if (!scales()) return {biases + row, nullptr, nullptr, stride};
    return {biases + row, row_scales + row, column_scales + row, stride};
  }
};

// Contexts of all networks: biases and row scales (transforms, units, contexts), column scales
// (transforms, input units, contexts), and which of them each row has, if not its own.
template <class T>
class Contexts {
 public:
  Contexts(const Layout& layout, const Tensors& parts) : layout_(layout) {
    if (parts.empty()) return;
    all_.biases = parts[0].const_data_ptr<T>();
    if (parts[1].numel()) all_.row_scales = parts[1].const_data_ptr<T>();
    if (parts[2].numel()) all_.column_scales = parts[2].const_data_ptr<T>();
    if (parts[3].numel()) index_ = parts[3].const_data_ptr<int64_t>();
    all_.stride = parts[0].size(2);
  }

  explicit operator bool() const { return all_.biases; }
  bool scales() const { return all_.scales(); }

  // How many numbers `of` may need room for.
  int64_t room(int64_t rows) const {
    return index_ ? rows * (scales() ? 2 * layout_.rows + layout_.columns : layout_.rows) : 0;
  }

  // Numbers of one network for some rows: where they stand, or gathered into `free`.
  Context<const T> of(int64_t transform, int64_t start, int64_t rows, T* free) const {
    Context<const T> found = network(all_, transform);
    if (!index_) return found.from(start);
    const auto gather = [&](const T* from, int64_t units) {
      T* to = free;
      for (int64_t unit = 0; unit < units; ++unit, from += all_.stride, free += rows) {
        for (int64_t row = 0; row < rows; ++row) free[row] = from[index_[start + row]];
      }
      return to;
    };
    found.biases = gather(found.biases, layout_.rows);
    if (scales()) {
      found.row_scales = gather(found.row_scales, layout_.rows);
      found.column_scales = gather(found.column_scales, layout_.columns);
    }
    found.stride = rows;
    return found;
  }

  // The part of one network, of numbers or gradients of all.
  template <class N>
  Context<N> network(Context<N> all, int64_t transform) const {
    if (!all.biases) return {};
    all.biases += transform * layout_.rows * all.stride;
    if (!all.scales()) return all;
    all.row_scales += transform * layout_.rows * all.stride;
    all.column_scales += transform * layout_.columns * all.stride;
    return all;
  }

 private:
  const Layout& layout_;
  Context<const T> all_;
  const int64_t* index_ = nullptr;
};

// line *= scale
template <class T>
inline void scale_line(const T* scale, int64_t rows, T* line) {
#pragma omp simd
  for (int64_t row = 0; row < rows; ++row) line[row] *= scale[row];
}

// Lines of a whole layer times their scales, into `to`, which may be where they are.
template <class T>
void scale_lines(const T* from, const T* scales, int64_t stride, int64_t units, int64_t rows,
                 T* to) {
  at::parallel_for(0, units, std::max<int64_t>(1, 16384 / rows), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const T *line = from + unit * rows, *scale = scales + unit * stride;
      T* out = to + unit * rows;
#pragma omp simd
      for (int64_t row = 0; row < rows; ++row) out[row] = line[row] * scale[row];
    }
  });
}

// h = scale * h + bias, line by line; `context` begins at the rows' first.
template <class T>
void modulate(const T* biases, const T* scales, int64_t stride, int64_t units, int64_t rows,
              int64_t distance, T* h) {
  for (int64_t unit = 0; unit < units; ++unit) {
    T* line = h + unit * distance;
    const T* bias = biases + unit * stride;
    if (scales) {
      const T* scale = scales + unit * stride;
#pragma omp simd
      for (int64_t row = 0; row < rows; ++row) line[row] = line[row] * scale[row] + bias[row];
    } else {
#pragma omp simd
      for (int64_t row = 0; row < rows; ++row) line[row] += bias[row];
    }
  }
}

}  // namespace bnaf

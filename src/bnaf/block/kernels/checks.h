// Checks of all that a caller hands to the kernels, before the first pointer is taken.
//
// Whatever is passed from Python, or was read from a file, either agrees in sizes, types and
// values or raises: no entry point reads or writes beyond its tensors.
#pragma once

#include <limits>

#include "stack.h"

namespace bnaf {

constexpr int64_t kMostUnits = 1 << 24;  // units of a layer; BLAS counts in 32 bits
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();

// A dense tensor on the CPU, of this type and shape.
inline void check_tensor(const char* name, const Tensor& tensor, at::ScalarType kind,
                         at::IntArrayRef sizes) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
                        tensor.scalar_type() == kind && tensor.is_contiguous() &&
                        tensor.sizes() == sizes && !tensor.is_neg() && !tensor.is_conj(),
                    "bnaf kernels: ", name, " must be a contiguous tensor of ", toString(kind),
                    " and shape ", sizes);
}

inline at::ScalarType check_type(const char* name, const Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.dim() == 2 &&
                        (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble),
                    "bnaf kernels: ", name, " must be a matrix of float32 or float64");
  return tensor.scalar_type();
}

// The layout of networks whose sizes are possible.
inline Layout checked_layout(int64_t transforms, int64_t features, at::IntArrayRef blocks) {
  bool possible = transforms >= 1 && features >= 1 && features <= kMostUnits && blocks.size() >= 2 &&
                  blocks.size() <= 64 && blocks.front() == 1 && blocks.back() == 1;
  for (const int64_t block : blocks) {
    possible = possible && block >= 1 && block <= kMostUnits / features;
  }
  TORCH_CHECK_VALUE(possible, "bnaf kernels: no networks have ", transforms, " transforms, ", features,
                    " features and blocks ", blocks);
  Layout layout(transforms, features, blocks);
  TORCH_CHECK_VALUE(layout.weights <= std::numeric_limits<int64_t>::max() / 64 / transforms,
                    "bnaf kernels: the networks are too large");
  return layout;
}

inline void check_normalise(const Tensor& packed, const Tensor& log_gain, at::IntArrayRef blocks,
                            int64_t features) {
  const at::ScalarType kind = check_type("weight", packed);
  const Layout layout = checked_layout(packed.size(0), features, blocks);
  check_tensor("weight", packed, kind, {layout.transforms, layout.entries});
  check_tensor("log_gain", log_gain, kind, {layout.transforms, layout.rows});
}

inline void check_normalise_backward(const Tensor& packed, const Tensor& log_gain,
                                     at::IntArrayRef blocks, int64_t features,
                                     const Tensors& results, const Tensors& grads) {
  check_normalise(packed, log_gain, blocks, features);
  const Layout layout(packed.size(0), features, blocks);
  const at::ScalarType kind = packed.scalar_type();
  TORCH_CHECK_VALUE(results.size() == 4 && grads.size() == 3,
                    "bnaf kernels: expected 4 results and 3 gradients");
  const int64_t sizes[] = {layout.weights, layout.averages, layout.rows, features};
  for (int64_t index = 0; index < 4; ++index) {
    check_tensor("result", results[index], kind, {layout.transforms, sizes[index]});
  }
  const int64_t others[] = {layout.weights, layout.averages, features};
  for (int64_t index = 0; index < 3; ++index) {
    check_tensor("gradient", grads[index], kind, {layout.transforms, others[index]});
  }
}

// Each order must be a permutation: it says where a feature is written.
inline void check_orders(const Tensor& orders, int64_t transforms, int64_t features) {
  if (orders.defined() && orders.numel() == 0) return;
  check_tensor("orders", orders, at::kLong, {transforms - 1, features});
  const int64_t* entries = orders.const_data_ptr<int64_t>();
  std::vector<int64_t> seen(features, -1);
  for (int64_t index = 0; index < orders.numel(); ++index) {
    const int64_t entry = entries[index], row = index / features;
    TORCH_CHECK_VALUE(entry >= 0 && entry < features && seen[entry] != row,
                      "bnaf kernels: orders must hold permutations of the features");
    seen[entry] = row;
  }
}

// Rows and `parts` of a stack: matrices, biases, averages, log-slopes, gates and orders.
inline Layout check_stack(const Tensor& rows, const Tensors& parts, at::IntArrayRef blocks,
                          at::IntArrayRef residuals, int64_t activation, double leak) {
  TORCH_CHECK_VALUE(parts.size() == 6, "bnaf kernels: expected 6 parts, got ", parts.size());
  const at::ScalarType kind = check_type("rows", rows);
  check_type("log_slope", parts[3]);
  const Layout layout = checked_layout(parts[3].size(0), parts[3].size(1), blocks);
  TORCH_CHECK_VALUE(rows.size(0) >= 1 && rows.size(0) <= kMostRows,
                    "bnaf kernels: expected between 1 and ", kMostRows, " rows");
  check_tensor("rows", rows, kind, {rows.size(0), layout.features});
  const int64_t sizes[] = {layout.weights, layout.rows, layout.averages, layout.features};
  for (int64_t index = 0; index < 4; ++index) {
    check_tensor("part", parts[index], kind, {layout.transforms, sizes[index]});
  }
  TORCH_CHECK_VALUE(static_cast<int64_t>(residuals.size()) == layout.transforms,
                    "bnaf kernels: expected one residual for each transform");
  int64_t gates = 0;
  for (int64_t transform = 0; transform < layout.transforms; ++transform) {
    const int64_t residual = residuals[transform];
    TORCH_CHECK_VALUE(residual >= kNone && residual <= kGated, "bnaf kernels: no residual ",
                      residual);
    if (residual == kGated) gates = transform + 1;
  }
  TORCH_CHECK_VALUE(parts[4].defined() && parts[4].dim() == 1 && parts[4].numel() >= gates,
                    "bnaf kernels: expected ", gates, " gates");
  check_tensor("gates", parts[4], kind, {parts[4].numel()});
  check_orders(parts[5], layout.transforms, layout.features);
  TORCH_CHECK_VALUE(activation >= kTanh && activation <= kLeakyReLU && std::isfinite(leak),
                    "bnaf kernels: no activation ", activation, " of leak ", leak);
  return layout;
}

// Contexts, if any: biases, row scales, column scales, and which of them each row has. Those of a
// training pass have no index: each row has its own.
inline void check_contexts(const Layout& layout, const Tensors& contexts, const Tensor& rows,
                           bool training) {
  if (contexts.empty()) return;
  TORCH_CHECK_VALUE(contexts.size() == 4 && contexts[0].defined() && contexts[0].dim() == 3 &&
                        contexts[1].defined() && contexts[2].defined() && contexts[3].defined(),
                    "bnaf kernels: expected biases, row scales, column scales and index of contexts");
  const at::ScalarType kind = rows.scalar_type();
  const int64_t count = contexts[0].size(2), scaled = contexts[1].numel() + contexts[2].numel();
  check_tensor("context biases", contexts[0], kind, {layout.transforms, layout.rows, count});
  if (scaled) {
    check_tensor("row scales", contexts[1], kind, {layout.transforms, layout.rows, count});
    check_tensor("column scales", contexts[2], kind, {layout.transforms, layout.columns, count});
  }
  const Tensor& index = contexts[3];
  if (training || index.numel() == 0) {
    TORCH_CHECK_VALUE(count == rows.size(0) && index.numel() == 0,
                      "bnaf kernels: expected one context for each row, got ", count);
    return;
  }
  check_tensor("context index", index, at::kLong, {rows.size(0)});
  const int64_t* entries = index.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < index.numel(); ++row) {
    TORCH_CHECK_VALUE(entries[row] >= 0 && entries[row] < count, "bnaf kernels: no context ",
                      entries[row], " among ", count);
  }
}

// What a forward pass kept for its gradient, part of the batch by part; `cells` tells whether of
// cells.
inline void check_kept(const Layout& layout, const Tensors& kept, bool scales, const Tensor& grad,
                       bool cells) {
  const int64_t rows = grad.size(0), slopes = 3 + 2 * layout.last(), alone = slopes + scales;
  const int64_t each = alone + (cells ? 3 + layout.last() : 0);
  const int64_t parts = static_cast<int64_t>(kept.size()) / each;
  const at::ScalarType kind = grad.scalar_type();
  TORCH_CHECK_VALUE(parts >= 1 && parts <= rows && static_cast<int64_t>(kept.size()) == parts * each,
                    "bnaf kernels: expected what a forward pass kept");
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t count = (part + 1) * rows / parts - part * rows / parts;
    for (int64_t index = 0; index < each; ++index) {
      const Tensor& tensor = kept[part * each + index];
      int64_t units = layout.features;  // inputs, outputs and log-slopes
      if (cells && index == each - 1) {
        check_tensor("kept", tensor, kind, {4, units, count});
      } else if (index >= alone) {  // distances
        if (index >= alone + 2) units = layout.layers[index - alone - 2].rows();
        check_tensor("kept", tensor, kind, {layout.transforms, units, 2 * count});
      } else {
        if (index >= 3) units = layout.layers[(index - 3) / 2 + (index - 3) % 2].rows();
        if (index == slopes) units = layout.layers[0].rows();
        check_tensor("kept", tensor, kind, {layout.transforms, units, count});
      }
    }
  }
}

// A stack that takes cells: in one order, and with no scales of contexts.
inline void check_order(const Tensors& parts, bool scales) {
  TORCH_CHECK_VALUE(parts[5].numel() == 0 && !scales,
                    "bnaf kernels: cells take networks in one order, and contexts without scales");
}

// The distances of cells, and which are known.
inline void check_cells(const Tensor& middle, const Tensor& below, const Tensor& above,
                        const Tensor& known) {
  check_tensor("below", below, middle.scalar_type(), middle.sizes());
  check_tensor("above", above, middle.scalar_type(), middle.sizes());
  check_tensor("known", known, at::kBool, middle.sizes());
}

}  // namespace bnaf

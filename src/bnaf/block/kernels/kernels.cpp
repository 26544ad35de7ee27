// Entry points of the compiled kernels: what Python calls, registered as operators of torch.
#include <torch/library.h>

#include "cells.h"
#include "checks.h"
#include "gates.h"
#include "inverse.h"
#include "winograd.h"

namespace bnaf {
namespace {

template <class Body>
auto for_activation(int64_t kind, const Body& body) {
  if (kind == kTanh) return body(std::integral_constant<Activation, kTanh>());
  if (kind == kLeakyTanh) return body(std::integral_constant<Activation, kLeakyTanh>());
  return body(std::integral_constant<Activation, kLeakyReLU>());
}

template <class Body>
auto for_dtype(const Tensor& tensor, const Body& body) {
  return tensor.scalar_type() == at::kFloat ? body(float()) : body(double());
}

Tensors normalise_op(const Tensor& packed, const Tensor& log_gain, at::IntArrayRef blocks,
                     int64_t features) {
  check_normalise(packed, log_gain, blocks, features);
  return for_dtype(packed, [&](auto like) {
    return normalise<decltype(like)>(packed, log_gain, blocks, features);
  });
}

Tensors normalise_backward_op(const Tensor& packed, const Tensor& log_gain,
                              at::IntArrayRef blocks, int64_t features, const Tensors& results,
                              const Tensors& grads) {
  check_normalise_backward(packed, log_gain, blocks, features, results, grads);
  return for_dtype(packed, [&](auto like) {
    return pull_back_normalise<decltype(like)>(packed, log_gain, blocks, features, results, grads);
  });
}

// Call a body with the stack and the activation, in the type of its tensors.
template <class Body>
auto with_stack(const Tensor& x, const Tensors& parts, at::IntArrayRef blocks,
                at::IntArrayRef residuals, int64_t activation, double leak,
                const Tensors& contexts, bool training, const Body& body) {
  const Layout layout = check_stack(x, parts, blocks, residuals, activation, leak);
  check_contexts(layout, contexts, x, training);
  return for_dtype(parts[0], [&](auto like) {
    const Stack<decltype(like)> stack(parts[0], parts[1], parts[2], parts[3], parts[4], parts[5],
                                      blocks, residuals, leak, contexts);
    return for_activation(activation, [&](auto kind) { return body(stack, like, kind); });
  });
}

// y, log-determinants, and what the gradient needs (nothing without `keep`).
std::tuple<Tensor, Tensor, Tensors> forward_op(const Tensor& x, const Tensors& parts,
                                               at::IntArrayRef blocks, at::IntArrayRef residuals,
                                               int64_t activation, double leak, const Tensors& contexts,
                                               bool keep) {
  return with_stack(x, parts, blocks, residuals, activation, leak, contexts, keep,
                    [&](const auto& stack, auto like, auto kind) {
                      using T = decltype(like);
                      return keep ? train_forward<T, kind()>(stack, x)
                                  : score<T, kind()>(stack, x);
                    });
}

// Gradients of x, matrices, biases, averages, log-slopes, gates and the numbers of contexts.
Tensors backward_op(const Tensors& kept, const Tensors& parts, at::IntArrayRef blocks,
                    at::IntArrayRef residuals, int64_t activation, double leak,
                    const Tensors& contexts, const Tensor& grad_y,
                    const Tensor& grad_log_det) {
  return with_stack(grad_y, parts, blocks, residuals, activation, leak, contexts, true,
                    [&](const auto& stack, auto like, auto kind) {
                      using T = decltype(like);
                      check_tensor("gradient", grad_log_det, grad_y.scalar_type(), {grad_y.size(0)});
                      check_kept(stack.layout, kept, stack.contexts.scales(), grad_y, false);
                      return train_backward<T, kind()>(stack, kept, grad_y, grad_log_det);
                    });
}

// The log-share of every cell, and what the gradient needs (nothing without `keep`).
std::tuple<Tensor, Tensors> shares_op(const Tensor& middle, const Tensor& below,
                                      const Tensor& above, const Tensor& known,
                                      const Tensors& parts, at::IntArrayRef blocks,
                                      at::IntArrayRef residuals, int64_t activation, double leak,
                                      const Tensors& contexts, bool keep) {
  return with_stack(middle, parts, blocks, residuals, activation, leak, contexts, true,
                    [&](const auto& stack, auto like, auto kind) {
                      using T = decltype(like);
                      check_order(parts, stack.contexts.scales());
                      check_cells(middle, below, above, known);
                      return shares_forward<T, kind()>(stack, middle, below, above, known, keep);
                    });
}

// Gradients of middles, distances below and above, matrices, biases, averages, log-slopes, gates
// and the biases of contexts.
Tensors shares_backward_op(const Tensors& kept, const Tensors& parts, at::IntArrayRef blocks,
                           at::IntArrayRef residuals, int64_t activation, double leak,
                           const Tensors& contexts, const Tensor& grad) {
  return with_stack(grad, parts, blocks, residuals, activation, leak, contexts, true,
                    [&](const auto& stack, auto like, auto kind) {
                      using T = decltype(like);
                      check_order(parts, stack.contexts.scales());
                      check_kept(stack.layout, kept, false, grad, true);
                      return shares_backward<T, kind()>(stack, kept, grad);
                    });
}

// x, whether each row has a pre-image, and whether its iteration ended.
std::tuple<Tensor, Tensor, Tensor> inverse_op(const Tensor& y, const Tensors& parts,
                                              at::IntArrayRef blocks, at::IntArrayRef residuals,
                                              int64_t activation, double leak,
                                              const Tensors& contexts) {
  return with_stack(y, parts, blocks, residuals, activation, leak, contexts, false,
                    [&](const auto& stack, auto like, auto kind) {
                      return invert<decltype(like), kind()>(stack, y);
                    });
}

}  // namespace
}  // namespace bnaf

// `parts` of a stack: matrices, biases, averages, log-slopes, gates and orders; `contexts`: none, or
// biases, row scales, column scales and index, of which all but the first may be empty.
TORCH_LIBRARY(bnaf, library) {
  library.def("normalise(Tensor packed, Tensor log_gain, int[] blocks, int features) -> Tensor[]",
              &bnaf::normalise_op);
  library.def(
      "normalise_backward(Tensor packed, Tensor log_gain, int[] blocks, int features, "
      "Tensor[] results, Tensor[] grads) -> Tensor[]",
      &bnaf::normalise_backward_op);
  library.def(
      "forward(Tensor x, Tensor[] parts, int[] blocks, int[] residuals, int activation, "
      "float leak, Tensor[] contexts, bool keep) -> (Tensor, Tensor, Tensor[])",
      &bnaf::forward_op);
  library.def(
      "backward(Tensor[] kept, Tensor[] parts, int[] blocks, int[] residuals, int activation, "
      "float leak, Tensor[] contexts, Tensor grad_y, Tensor grad_log_det) -> Tensor[]",
      &bnaf::backward_op);
  library.def(
      "shares(Tensor middle, Tensor below, Tensor above, Tensor known, Tensor[] parts, "
      "int[] blocks, int[] residuals, int activation, float leak, Tensor[] contexts, bool keep) "
      "-> (Tensor, Tensor[])",
      &bnaf::shares_op);
  library.def(
      "shares_backward(Tensor[] kept, Tensor[] parts, int[] blocks, int[] residuals, "
      "int activation, float leak, Tensor[] contexts, Tensor grad) -> Tensor[]",
      &bnaf::shares_backward_op);
  library.def(
      "inverse(Tensor y, Tensor[] parts, int[] blocks, int[] residuals, int activation, "
      "float leak, Tensor[] contexts) -> (Tensor, Tensor, Tensor)",
      &bnaf::inverse_op);
  library.def("convolve(Tensor x, Tensor weight, Tensor bias, int stride) -> Tensor",
              &bnaf::convolve);
  library.def(
      "convolve_backward(Tensor x, Tensor weight, Tensor grad, int stride) -> (Tensor, Tensor)",
      &bnaf::pull_back_convolution);
  library.def("convolve_transposed(Tensor x, Tensor weight, Tensor bias, int stride) -> Tensor",
              &bnaf::convolve_transposed);
  library.def(
      "convolve_transposed_backward(Tensor x, Tensor weight, Tensor grad, int stride) "
      "-> (Tensor, Tensor)",
      &bnaf::pull_back_transposed);
  library.def("gate(Tensor both) -> Tensor", &bnaf::gate);
  library.def("gate_backward(Tensor both, Tensor grad) -> Tensor", &bnaf::pull_back_gate);
}

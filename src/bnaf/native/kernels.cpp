// Entry points of the compiled kernels: what Python calls, registered as operators of torch.
#include <torch/library.h>

#include "inverse.h"

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
  if (tensor.scalar_type() == at::kFloat) return body(float());
  TORCH_CHECK(tensor.scalar_type() == at::kDouble, "bnaf kernels take float32 and float64");
  return body(double());
}

Tensors normalise_op(const Tensors& packed, const Tensors& log_gains, at::IntArrayRef blocks) {
  return for_dtype(packed[0], [&](auto like) {
    return normalise<decltype(like)>(packed, log_gains, blocks);
  });
}

Tensors normalise_backward_op(const Tensors& packed, const Tensors& log_gains,
                              const Tensors& results, const Tensors& grads) {
  return for_dtype(packed[0], [&](auto like) {
    return pull_back_normalise<decltype(like)>(packed, log_gains, results, grads);
  });
}

// y, log-determinants, and what the gradient needs (nothing without `keep`).
std::tuple<Tensor, Tensor, Tensors> forward_op(const Tensor& x, const Tensors& matrices,
                                               const Tensors& biases, const Tensors& averages,
                                               const Tensor& log_slope, const Tensor& gates,
                                               const Tensor& orders, at::IntArrayRef residuals,
                                               int64_t activation, double leak, bool keep) {
  return for_dtype(x, [&](auto like) {
    using T = decltype(like);
    const Stack<T> stack(matrices, biases, averages, log_slope, gates, orders, residuals, leak);
    return for_activation(activation, [&](auto kind) {
      return keep ? train_forward<T, kind()>(stack, x) : score<T, kind()>(stack, x);
    });
  });
}

// Gradients of x, log-slopes and gates, then of matrix, bias and averages of each layer.
Tensors backward_op(const Tensors& kept, const Tensors& matrices, const Tensors& biases,
                    const Tensors& averages, const Tensor& log_slope, const Tensor& gates,
                    const Tensor& orders, at::IntArrayRef residuals, int64_t activation,
                    double leak, const Tensor& grad_y, const Tensor& grad_log_det) {
  return for_dtype(log_slope, [&](auto like) {
    using T = decltype(like);
    const Stack<T> stack(matrices, biases, averages, log_slope, gates, orders, residuals, leak);
    return for_activation(activation, [&](auto kind) {
      return train_backward<T, kind()>(stack, kept, grad_y, grad_log_det);
    });
  });
}

// x, whether each row has a pre-image, and whether its iteration ended.
std::tuple<Tensor, Tensor, Tensor> inverse_op(const Tensor& y, const Tensors& matrices,
                                              const Tensors& biases, const Tensors& averages,
                                              const Tensor& log_slope, const Tensor& gates,
                                              const Tensor& orders, at::IntArrayRef residuals,
                                              int64_t activation, double leak) {
  return for_dtype(y, [&](auto like) {
    using T = decltype(like);
    const Stack<T> stack(matrices, biases, averages, log_slope, gates, orders, residuals, leak);
    return for_activation(activation, [&](auto kind) { return invert<T, kind()>(stack, y); });
  });
}

}  // namespace
}  // namespace bnaf

TORCH_LIBRARY(bnaf, library) {
  library.def("normalise(Tensor[] packed, Tensor[] log_gains, int[] blocks) -> Tensor[]",
              &bnaf::normalise_op);
  library.def(
      "normalise_backward(Tensor[] packed, Tensor[] log_gains, Tensor[] results, Tensor[] grads) "
      "-> Tensor[]",
      &bnaf::normalise_backward_op);
  library.def(
      "forward(Tensor x, Tensor[] matrices, Tensor[] biases, Tensor[] averages, Tensor log_slope, "
      "Tensor gates, Tensor orders, int[] residuals, int activation, float leak, bool keep) -> "
      "(Tensor, Tensor, Tensor[])",
      &bnaf::forward_op);
  library.def(
      "backward(Tensor[] kept, Tensor[] matrices, Tensor[] biases, Tensor[] averages, "
      "Tensor log_slope, Tensor gates, Tensor orders, int[] residuals, int activation, "
      "float leak, Tensor grad_y, Tensor grad_log_det) -> Tensor[]",
      &bnaf::backward_op);
  library.def(
      "inverse(Tensor y, Tensor[] matrices, Tensor[] biases, Tensor[] averages, "
      "Tensor log_slope, Tensor gates, Tensor orders, int[] residuals, int activation, "
      "float leak) -> (Tensor, Tensor, Tensor)",
      &bnaf::inverse_op);
}

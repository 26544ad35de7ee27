// Values times the sigmoid of their gates, for images laid out pixel by pixel: of each pixel first
// all values, then all gates.
#pragma once

#include <ATen/Parallel.h>

#include "arithmetic.h"
#include "checks.h"

namespace bnaf {

constexpr int64_t kPixels = 512;  // pixels that a thread takes at least

inline void check_gates(const Tensor& both) {
  TORCH_CHECK_VALUE(both.defined() && both.dim() == 2 && both.size(1) % 2 == 0,
                    "bnaf kernels: values and gates must be a matrix with a column for each");
  check_tensor("values and gates", both, at::kFloat, both.sizes());
}

// Call a body with each pixel's values, their gates, and where the pixel begins in a matrix of half
// as many columns.
template <class Body>
void each_pixel(const Tensor& both, const Body& body) {
  const int64_t channels = both.size(1) / 2;
  const float* entries = both.const_data_ptr<float>();
  at::parallel_for(0, both.size(0), kPixels, [&](int64_t from, int64_t to) {
    for (int64_t pixel = from; pixel < to; ++pixel) {
      const float* values = entries + 2 * pixel * channels;
      body(values, values + channels, pixel * channels, channels);
    }
  });
}

// a sigma(b), for values a and gates b.
inline Tensor gate(const Tensor& both) {
  check_gates(both);
  Tensor gated = at::empty({both.size(0), both.size(1) / 2}, both.options());
  float* out = gated.mutable_data_ptr<float>();
  each_pixel(both, [&](const float* values, const float* gates, int64_t place, int64_t channels) {
    for (int64_t channel = 0; channel < channels; ++channel) {
      out[place + channel] = values[channel] / (1 + exponential(-gates[channel]));
    }
  });
  return gated;
}

// Gradients of values and gates: s = sigma(b) times what arrives, and a s (1 - s) times it.
inline Tensor pull_back_gate(const Tensor& both, const Tensor& grad) {
  check_gates(both);
  check_tensor("gradient", grad, at::kFloat, {both.size(0), both.size(1) / 2});
  Tensor grad_both = at::empty_like(both);
  const float* arrived = grad.const_data_ptr<float>();
  float* out = grad_both.mutable_data_ptr<float>();
  each_pixel(both, [&](const float* values, const float* gates, int64_t place, int64_t channels) {
    const float* shares = arrived + place;
    float* of_values = out + 2 * place;
    float* of_gates = of_values + channels;
#pragma omp simd
    for (int64_t channel = 0; channel < channels; ++channel) {
      const float share = 1 / (1 + exponential(-gates[channel]));
      const float shared = shares[channel] * share;
      of_values[channel] = shared;
      of_gates[channel] = shared * values[channel] * (1 - share);
    }
  });
  return grad_both;
}

}  // namespace bnaf

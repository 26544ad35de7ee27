// The mass of a standard normal law between z - below and z + above, in logarithms, with its
// derivatives; no digits cancel, however narrow the interval is or however far out.
#pragma once

#include <ATen/native/Math.h>

#include "arithmetic.h"

namespace bnaf {

constexpr double kLogRootTwoPi = 0.91893853320467274178;
constexpr int kNodes = 8;  // of Gauss and Legendre's rule; the last has no weight and fills a vector
constexpr double kNode[kNodes] = {-0.4745539561713793, -0.37076559279969723, -0.2029225756886986,
                                  0.0,                 0.2029225756886986,   0.37076559279969723,
                                  0.4745539561713793,  0.0};
constexpr double kNodeWeight[kNodes] = {0.06474248308443487, 0.13985269574463843,
                                        0.19091502525255935, 0.20897959183673465,
                                        0.19091502525255935, 0.13985269574463843,
                                        0.06474248308443487, 0.0};

template <class T>
constexpr T kSteepest = sizeof(T) == 4 ? T(8) : T(1);  // nats that the density may fall under the rule

template <class T>
struct Mass {
  T value, by_z, by_below, by_above;
};

// phi(x) / Phi(x)
inline double hazard(double x) { return std::sqrt(2 / M_PI) / calc_erfcx(-std::sqrt(0.5) * x); }

// An interval whose density is nearly a polynomial.
template <class T>
Mass<T> narrow_mass(T centre, T width) {
  T moved[kNodes], weight[kNodes], total = 0, first = 0, second = 0;
#pragma omp simd reduction(+ : total, first, second)
  for (int node = 0; node < kNodes; ++node) {
    moved[node] = width * T(kNode[node]);
    // relative to the density at the centre, which may be far out
    weight[node] = T(kNodeWeight[node]) * exponential(-moved[node] * (centre + moved[node] / 2));
    total += weight[node];
    first += weight[node] * moved[node];
    second += weight[node] * T(kNode[node]) * (centre + moved[node]);
  }
  const T by_centre = -centre - first / total;
  const T by_width = (width > std::numeric_limits<T>::min() ? 1 / width : T(0)) - second / total;
  const T value = -centre * centre / 2 - T(kLogRootTwoPi) + std::log(width) + std::log(total);
  return {value, by_centre, by_width - by_centre / 2, by_width + by_centre / 2};
}

// One that is wide, or whose density falls far, with its centre in the lower half.
template <class T>
Mass<T> wide_mass(double z, double below, double above) {
  const double low = z - below, high = z + above, log_high = calc_log_ndtr(high);
  const double fall = std::max(log_high - calc_log_ndtr(low), -(below + above) * high);
  const double kept = -std::expm1(-fall);
  const double by_high = hazard(high) / kept, by_low = -hazard(low) * std::exp(-fall) / kept;
  return {T(log_high + std::log(kept)), T(by_low + by_high), T(-by_low), T(by_high)};
}

template <class T>
Mass<T> log_mass(T z, T below, T above) {
  const bool no_lower = std::isinf(below), no_upper = std::isinf(above);
  if (no_lower && no_upper) return {0, 0, 0, 0};
  if (no_lower || no_upper) {
    const double at = no_lower ? double(z) + above : double(below) - z, slope = hazard(at);
    return {T(calc_log_ndtr(at)), T(no_lower ? slope : -slope), T(no_lower ? 0 : slope),
            T(no_lower ? slope : 0)};
  }
  const T width = std::max(below + above, std::numeric_limits<T>::min());
  const T centre = z + (above - below) / 2;
  if (width < 1 && std::abs(centre) * width < kSteepest<T>) return narrow_mass(centre, width);
  if (!(centre > 0)) return wide_mass<T>(z, below, above);
  const Mass<T> turned = wide_mass<T>(-z, above, below);
  return {turned.value, -turned.by_z, turned.by_above, turned.by_below};
}

}  // namespace bnaf

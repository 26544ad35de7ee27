// Exponential and hyperbolic tangent without branches, so that loops over rows become vectors.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace bnaf {

template <class T>
struct Format;

template <>
struct Format<float> {
  using Int = int32_t;
  static constexpr int mantissa = 23;
  static constexpr float rounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr float log2_high = 0.693145751953125f, log2_low = 1.42860682030941723212e-6f;
  static constexpr float smallest = -87.0f, largest = 88.0f;  // exponents of finite results
  static constexpr float flat = 10.0f;  // beyond it tanh is 1
  static constexpr int degree = 7;
};

template <>
struct Format<double> {
  using Int = int64_t;
  static constexpr int mantissa = 52;
  static constexpr double rounder = 6755399441055744.0;
  static constexpr double log2_high = 6.93147180369123816490e-1;
  static constexpr double log2_low = 1.90821492927058770002e-10;
  static constexpr double smallest = -708.0, largest = 709.0;
  static constexpr double flat = 20.0;
  static constexpr int degree = 13;
};

// 1 / (n + 1)! for n = 0, 1, ...
inline constexpr double kFactorials[] = {
    1.0,          1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
    1.0 / 720,    1.0 / 5040,    1.0 / 40320,    1.0 / 362880,    1.0 / 3628800,
    1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};

// e^x = power * (1 + rest), power a power of two and |rest| below 0.42.
template <class T>
struct Split {
  T power, rest;
};

template <class T>
inline Split<T> split_exp(T x) {
  using F = Format<T>;
  using Int = typename F::Int;
  const T shifted = x * static_cast<T>(1.4426950408889634074) + F::rounder;
  const T whole = shifted - F::rounder;
  const T r = (x - whole * F::log2_high) - whole * F::log2_low;
  T sum = static_cast<T>(kFactorials[F::degree - 1]);
#pragma GCC unroll 16
  for (int n = F::degree - 2; n >= 0; --n) sum = sum * r + static_cast<T>(kFactorials[n]);
  const Int exponent = std::bit_cast<Int>(shifted) - std::bit_cast<Int>(F::rounder);
  const Int one = std::bit_cast<Int>(static_cast<T>(1));
  return {std::bit_cast<T>(static_cast<Int>(one + (exponent << F::mantissa))), sum * r};
}

template <class T>
inline T exponential(T x) {
  x = x < Format<T>::smallest ? Format<T>::smallest : x;
  x = x > Format<T>::largest ? Format<T>::largest : x;
  const Split<T> parts = split_exp(x);
  return parts.power + parts.power * parts.rest;
}

// tanh(|x|) and e^{-2|x|} from one exponential, accurate for small x too.
template <class T>
struct Bend {
  T height, decay;
};

template <class T>
inline Bend<T> bend(T magnitude) {
  T x = -2 * magnitude;
  x = x < Format<T>::smallest ? Format<T>::smallest : x;
  const Split<T> parts = split_exp(x);
  const T minus_one = parts.power * parts.rest + (parts.power - 1);  // e^x - 1
  return {-minus_one / (minus_one + 2), parts.power + parts.power * parts.rest};
}

template <class T>
inline T hyperbolic_tangent(T x) {
  return std::copysign(bend(std::abs(x)).height, x);
}

template <class T>
inline T softplus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
}

template <class T>
inline T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

// What stands between the layers. Slopes of tanh come times e^{2 nearest}, where nearest is the
// smallest |h| of a feature, so that they cannot all underflow.
enum Activation : int64_t { kTanh = 0, kLeakyTanh = 1, kLeakyReLU = 2 };

template <class T>
struct Point {
  T value, slope;
};

template <class T, Activation kind>
struct Curve {
  T leak;

  // `lift` is e^{2 nearest} for tanh, 1 for the others.
  Point<T> at(T h, T lift) const {
    if constexpr (kind == kLeakyReLU) return {h > 0 ? h : leak * h, h > 0 ? T(1) : leak};
    const Bend<T> bent = bend(std::abs(h));
    const T y = std::copysign(bent.height, h);
    if constexpr (kind == kLeakyTanh) return {y + leak * h, (1 + leak) - y * y};
    const T above = 1 + bent.height;  // 1 - y^2 = e^{-2|h|} (1 + |y|)^2
    return {y, bent.decay * lift * above * above};
  }

  T value(T h) const { return at(h, T(1)).value; }

  // The same where e^{2 nearest} would overflow.
  Point<T> far_out(T h, T nearest) const {
    const T y = hyperbolic_tangent(h), above = 1 + std::abs(y);
    return {y, exponential(2 * (nearest - std::abs(h))) * above * above};
  }

  // Gradient for h, given those of the value and of the log-derivative.
  T pull_back(T h, T y, T grad_y, T grad_log_slope) const {
    if constexpr (kind == kTanh) return grad_y * (1 - y * y) - 2 * y * grad_log_slope;
    if constexpr (kind == kLeakyTanh) {
      // tanh(h); far out, where h swamps it, it is 1
      const T bent = std::abs(h) < Format<T>::flat ? y - leak * h : std::copysign(T(1), h);
      const T square = bent * bent, steep = (1 + leak) - square;
      return steep * grad_y + grad_log_slope * (2 * bent * (square - 1) / steep);
    }
    return h > 0 ? grad_y : leak * grad_y;
  }
};

constexpr double kFarOut = 20;  // |h| from which tanh needs far_out

}  // namespace bnaf

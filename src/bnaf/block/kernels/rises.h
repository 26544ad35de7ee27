// How far an activation moves over an interval, as a sum and product of positive numbers.
//
// With q = e^{-2|h|} and s = e^{-2 width}, tanh moves by 2 q (1 - s) / (1 + q), divided by 1 + q s on
// the way out, away from zero, and by q + s on the way in.
#pragma once

#include "arithmetic.h"

namespace bnaf {

// e^{-2x} and 1 - e^{-2x}.
template <class T>
struct Decay {
  T left, lost;
};

template <class T>
inline Decay<T> decay(T x) {
  x = -2 * x < Format<T>::smallest ? Format<T>::smallest : -2 * x;
  const Split<T> parts = split_exp(x);
  const T minus_one = parts.power * parts.rest + (parts.power - 1);
  return {parts.power + parts.power * parts.rest, -minus_one};
}

template <class T>
struct Rise {
  T value;  // how far the activation moves
  T slope;  // its derivative in the width
  T lean;   // minus its derivative in h
};

// An activation over the intervals of one unit: a line holds the widths below each middle, and
// after them those above.
template <class T, Activation kind>
struct Climb {
  T leak;

  // Rises of a unit; with `all` their derivatives, too.
  template <bool all>
  void line(const T* h, const T* widths, int64_t rows, T* values, T* slopes, T* leans) const {
    if constexpr (kind == kLeakyReLU) {
      run<all, false>(h, widths, rows, values, slopes, leans);
    } else if (T(far_off) < reach(h, widths, rows)) {
      run<all, true>(h, widths, rows, values, slopes, leans);
    } else {
      run<all, false>(h, widths, rows, values, slopes, leans);
    }
  }

 private:
  // Both exponentials underflow beyond it, and their ratio with them.
  static constexpr T far_off = -Format<T>::smallest / 2 - 3;

  // The largest of all |h| and widths.
  static T reach(const T* h, const T* widths, int64_t rows) {
    T largest = 0, widest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t row = 0; row < rows; ++row) largest = std::max(largest, std::abs(h[row]));
    if (largest < far_off) return largest;
#pragma omp simd reduction(max : widest)
    for (int64_t row = 0; row < 2 * rows; ++row) widest = std::max(widest, widths[row]);
    return std::min(largest, widest);
  }

  template <bool all, bool far>
  void run(const T* h, const T* widths, int64_t rows, T* values, T* slopes, T* leans) const {
    const T *below = widths, *above = widths + rows;
#pragma omp simd
    for (int64_t row = 0; row < rows; ++row) {
      const T at = h[row], down = below[row], up = above[row];
      const bool upwards = at >= 0;  // leads out
      const T outer = upwards ? up : down, inner = upwards ? down : up;
      const T magnitude = std::abs(at);
      Rise<T> out, in;
      if constexpr (kind == kLeakyReLU) {
        out = keep_on(at, outer), in = turn(at, magnitude, inner);
      } else {
        const Decay<T> of_h = decay(magnitude);
        const T bent = of_h.lost / (1 + of_h.left), sign = std::copysign(T(1), at);
        out = move_out(of_h.left, outer, bent, sign);
        in = move_in<far>(magnitude, of_h.left, inner, bent, sign);
      }
      values[row] = upwards ? in.value : out.value;
      values[rows + row] = upwards ? out.value : in.value;
      if constexpr (all) {
        slopes[row] = upwards ? in.slope : out.slope;
        slopes[rows + row] = upwards ? out.slope : in.slope;
        leans[row] = upwards ? in.lean : out.lean;
        leans[rows + row] = upwards ? out.lean : in.lean;
      }
    }
  }

  Rise<T> move_out(T q, T width, T bent, T sign) const {
    const Decay<T> s = decay(width);
    const T scale = 1 / (1 + q * s.left), rise = 2 * s.lost * (q * scale) / (1 + q);
    return {rise + leak * width, 4 * (q * scale) * (s.left * scale) + leak,
            sign * rise * (2 * bent + rise)};
  }

  template <bool far>
  Rise<T> move_in(T magnitude, T q, T width, T bent, T sign) const {
    T step = width;
    if constexpr (far) {  // a common factor of both exponentials is left out
      const T nearer = magnitude < width ? magnitude : width;
      const T shift = nearer > 20 ? nearer - 20 : T(0);
      q = exponential(-2 * (magnitude - shift)), step -= shift;
    }
    const Decay<T> s = decay(step);
    const T scale = 1 / (q + s.left), rise = 2 * s.lost * (q * scale) / (1 + q);
    return {rise + leak * width, 4 * (q * scale) * (s.left * scale) + leak,
            sign * rise * (2 * bent - rise)};
  }

  // The piecewise linear one, away from its kink, and towards and maybe over it.
  Rise<T> keep_on(T h, T width) const {
    const T slope = h >= 0 ? T(1) : leak;
    return {slope * width, slope, 0};
  }

  Rise<T> turn(T h, T magnitude, T width) const {
    const T here = h >= 0 ? T(1) : leak, there = h >= 0 ? leak : T(1);
    const T before = magnitude < width ? magnitude : width;
    const T end = width < magnitude ? here : there;
    return {here * before + there * (width - before), end, (h >= 0 ? T(-1) : T(1)) * (here - end)};
  }
};

}  // namespace bnaf

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

  // Both exponentials underflow beyond it, and their ratio with them.
  static constexpr T far_off = -Format<T>::smallest / 2 - 3;

  template <bool far>
  Rise<T> at(T h, const Decay<T>& of_h, T width, T side) const {
    if constexpr (kind == kLeakyReLU) {
      const T ahead = -side * h, before = std::min(ahead > 0 ? ahead : T(0), width);
      const T start = h > 0 ? T(1) : leak, end = h + side * width > 0 ? T(1) : leak;
      const T beyond = width - before;
      return {side > 0 ? beyond + leak * before : before + leak * beyond, end, side * (start - end)};
    }
    const T magnitude = std::abs(h);
    const bool outwards = side * h >= 0;
    T q = of_h.left, step = width;
    if constexpr (far) {  // a common factor of both exponentials is left out
      const T shift = outwards ? T(0) : std::max(T(0), std::min(magnitude, width) - 20);
      q = exponential(-2 * (magnitude - shift)), step -= shift;
    }
    const Decay<T> s = decay(step);
    const T scale = 1 / (outwards ? 1 + q * s.left : q + s.left);
    const T rise = 2 * s.lost * (q * scale) / (1 + q);
    const T bent = std::copysign(of_h.lost / (1 + of_h.left), h);
    return {rise + leak * width, 4 * (q * scale) * (s.left * scale) + leak,
            rise * (2 * bent + side * rise)};
  }

  // Rises of a unit; with `all` their derivatives, too.
  template <bool all>
  void line(const T* h, const T* widths, int64_t rows, T* values, T* slopes, T* leans) const {
    if (run<all, false>(h, widths, rows, values, slopes, leans) > far_off) {
      run<all, true>(h, widths, rows, values, slopes, leans);
    }
  }

 private:
  template <bool all, bool far>
  T run(const T* h, const T* widths, int64_t rows, T* values, T* slopes, T* leans) const {
    const T *below = widths, *above = widths + rows;
    T reach = 0;
#pragma omp simd reduction(max : reach)
    for (int64_t row = 0; row < rows; ++row) {
      const T magnitude = std::abs(h[row]), wider = std::max(below[row], above[row]);
      reach = std::max(reach, std::min(magnitude, wider));
      const Decay<T> of_h = kind == kLeakyReLU ? Decay<T>{} : decay(magnitude);
      const Rise<T> down = at<far>(h[row], of_h, below[row], T(-1));
      const Rise<T> up = at<far>(h[row], of_h, above[row], T(1));
      values[row] = down.value, values[rows + row] = up.value;
      if constexpr (all) {
        slopes[row] = down.slope, slopes[rows + row] = up.slope;
        leans[row] = down.lean, leans[rows + row] = up.lean;
      }
    }
    return reach;
  }
};

}  // namespace bnaf

// Products of many small matrices, row by column: BLAS is slow at these, and on processors that it
// does not know.
#pragma once

#include <cstdint>

namespace bnaf {

#ifdef __AVX512F__
constexpr int kWide = 16, kWideAcross = 4;
#else
constexpr int kWide = 8, kWideAcross = 2;
#endif
constexpr int kRowsTogether = 6;  // whose sums stay in registers, with so many vectors of columns

template <int kLanes>
struct Lanes {
  typedef float Type __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
};

// Where the entries of a matrix are: a step from row to row, and one from column to column.
struct Entries {
  const float* first;
  int64_t down, across;
};

// A block of C = A B, or of C + A B: some rows, and some vectors of columns. B and C have n columns.
template <int kLanes, int kRows, int kVectors>
inline void multiply_block(const Entries& a, int64_t k, const float* b, int64_t n, bool add,
                           float* c) {
  using Vector = typename Lanes<kLanes>::Type;
  Vector sums[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int vector = 0; vector < kVectors; ++vector) {
      const float* entry = c + row * n + vector * kLanes;
      sums[row][vector] = add ? *reinterpret_cast<const Vector*>(entry) : Vector{};
    }
  }
  for (int64_t step = 0; step < k; ++step) {
    Vector right[kVectors];
#pragma GCC unroll 8
    for (int vector = 0; vector < kVectors; ++vector) {
      right[vector] = *reinterpret_cast<const Vector*>(b + step * n + vector * kLanes);
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const float left = a.first[row * a.down + step * a.across];
#pragma GCC unroll 8
      for (int vector = 0; vector < kVectors; ++vector) sums[row][vector] += left * right[vector];
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int vector = 0; vector < kVectors; ++vector) {
      *reinterpret_cast<Vector*>(c + row * n + vector * kLanes) = sums[row][vector];
    }
  }
}

// The same for all columns.
template <int kLanes, int kAcross, int kRows>
inline void multiply_rows(const Entries& a, int64_t k, const float* b, int64_t n, bool add,
                          float* c) {
  int64_t column = 0;
  for (; column + kAcross * kLanes <= n; column += kAcross * kLanes) {
    multiply_block<kLanes, kRows, kAcross>(a, k, b + column, n, add, c + column);
  }
  for (; column < n; column += kLanes) {
    multiply_block<kLanes, kRows, 1>(a, k, b + column, n, add, c + column);
  }
}

template <int kLanes, int kAcross>
inline void multiply_lanes(int64_t m, Entries a, int64_t k, const float* b, int64_t n, bool add,
                           float* c) {
  int64_t row = 0;
  for (; row + kRowsTogether <= m; row += kRowsTogether) {
    multiply_rows<kLanes, kAcross, kRowsTogether>(a, k, b, n, add, c + row * n);
    a.first += kRowsTogether * a.down;
  }
  for (; row < m; ++row) {
    multiply_rows<kLanes, kAcross, 1>(a, k, b, n, add, c + row * n);
    a.first += a.down;
  }
}

// C = A B, or C + A B, where A has m rows and k columns, and n is a multiple of 8.
inline void multiply_small(int64_t m, const Entries& a, int64_t k, const float* b, int64_t n,
                           bool add, float* c) {
  if (n % kWide == 0) return multiply_lanes<kWide, kWideAcross>(m, a, k, b, n, add, c);
  multiply_lanes<8, 2>(m, a, k, b, n, add, c);
}

}  // namespace bnaf

// Convolutions of 5 x 5 pixels by Winograd's minimal filtering (Lavin and Gray, 2016): a patch of
// 8 x 8 pixels becomes 4 x 4 outputs by 64 products for each pair of channels, in place of 400.
// With a stride of 2, images are taken for ones of half the height and width whose pixels have four
// times the channels, and convolved by 3 x 3 of these: patches of 6 x 6, and 144 products.
//
// With the matrices B and A below, and U the weights as Python transforms them,
//
//   V = B d B',   M = V U (a product over channels at each of the points),   y = A M A'
//
// Images are laid out row, line, pixel, channel. A thread takes a few images at a time, so that
// what it computes of them stays in its cache.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "checks.h"
#include "products.h"

namespace bnaf {

constexpr int kOutputs = 4;
constexpr int64_t kTiles = 48;  // patches that a thread takes at a time, about
constexpr int64_t kVector = 8;  // channels that are computed at once

typedef float Channels __attribute__((vector_size(4 * kVector), aligned(4), may_alias));

template <int kStride>
struct Filter;

// Polynomials are known by their values at 0, 1, -1, 2, -2, 1/2, -1/2 and infinity.
template <>
struct Filter<1> {
  static constexpr int patch = 8;
  static constexpr int margin = 2;  // pixels that a patch begins before its outputs
  static constexpr float in[patch][patch] = {
      {1, 0, -5.25f, 0, 5.25f, 0, -1, 0},        {0, 1, 1, -4.25f, -4.25f, 1, 1, 0},
      {0, -1, 1, 4.25f, -4.25f, -1, 1, 0},       {0, 0.5f, 0.25f, -2.5f, -1.25f, 2, 1, 0},
      {0, -0.5f, 0.25f, 2.5f, -1.25f, -2, 1, 0}, {0, 2, 4, -2.5f, -5, 0.5f, 1, 0},
      {0, -2, 4, 2.5f, -5, -0.5f, 1, 0},         {0, -1, 0, 5.25f, 0, -5.25f, 0, 1}};
  static constexpr float out[kOutputs][patch] = {{1, 1, 1, 1, 1, 1, 1, 0},
                                                 {0, 1, -1, 2, -2, 0.5f, -0.5f, 0},
                                                 {0, 1, 1, 4, 4, 0.25f, 0.25f, 0},
                                                 {0, 1, -1, 8, -8, 0.125f, -0.125f, 1}};
};

// The same at 0, 1, -1, 2, -2 and infinity.
template <>
struct Filter<2> {
  static constexpr int patch = 6;
  static constexpr int margin = 1;
  static constexpr float in[patch][patch] = {{4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0},
                                             {0, 4, -4, -1, 1, 0}, {0, -2, -1, 2, 1, 0},
                                             {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
  static constexpr float out[kOutputs][patch] = {{1, 1, 1, 1, 1, 0},
                                                 {0, 1, -1, 2, -2, 0},
                                                 {0, 1, 1, 4, 4, 0},
                                                 {0, 1, -1, 8, -8, 1}};
};

// A matrix, or its transpose, times vectors of pixels; of each all channels are multiplied.
template <int kRows, int kColumns, bool kTransposed, class Matrix>
inline __attribute__((always_inline)) void transform(const Matrix& matrix, const float* in,
                                                     int64_t in_step, float* out,
                                                     int64_t out_step, int64_t channels) {
  for (int64_t channel = 0; channel < channels; channel += kVector) {
    Channels pixels[kColumns];
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
      pixels[column] = *reinterpret_cast<const Channels*>(in + column * in_step + channel);
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      Channels sum = {};
#pragma GCC unroll 8
      for (int column = 0; column < kColumns; ++column) {
        const float entry = kTransposed ? matrix[column][row] : matrix[row][column];
        if (entry != 0) sum += entry * pixels[column];
      }
      *reinterpret_cast<Channels*>(out + row * out_step + channel) = sum;
    }
  }
}

// Images cut into patches, some images at a time; height and width are those of outputs.
struct Patches {
  int64_t images, height, width, down, across, together, tiles;

  Patches(int64_t images, int64_t height, int64_t width)
      : images(images),
        height(height),
        width(width),
        down((height + kOutputs - 1) / kOutputs),
        across((width + kOutputs - 1) / kOutputs),
        together(std::max<int64_t>(1, kTiles / (down * across))),
        tiles(together * down * across) {}

  int64_t parts() const { return (images + together - 1) / together; }

  int64_t count(int64_t part) const { return std::min(together, images - part * together); }

  // Call a body with the number of each patch of a part, its image and its first output.
  template <class Body>
  void each(int64_t part, const Body& body) const {
    int64_t tile = 0;
    for (int64_t image = part * together; image < part * together + count(part); ++image) {
      for (int64_t line = 0; line < down * kOutputs; line += kOutputs) {
        for (int64_t pixel = 0; pixel < across * kOutputs; pixel += kOutputs) {
          body(tile++, image, line, pixel);
        }
      }
    }
  }

  // Call a body with each line of a square of pixels, where its first pixel within the image is,
  // and which of its pixels, from and to, are within; none, and no place, where the line is not.
  // Of an image with several lines for each line of outputs, the square has one, the phase-th.
  template <int kSize, int kPhases, class Body>
  void lines(int64_t image, int64_t line, int64_t pixel, int phase, const Body& body) const {
    const int64_t from = std::max<int64_t>(0, -pixel);
    const int64_t to = std::min<int64_t>(kSize, width - pixel);
    for (int index = 0; index < kSize; ++index) {
      const bool within = line + index >= 0 && line + index < height;
      const int64_t first = ((image * height + line + index) * kPhases + phase) * width;
      body(index, within ? first + pixel + from : 0, from, within ? to : from);
    }
  }

  // A square of pixels of an image, zero where it reaches beyond.
  template <int kSize, int kPhases>
  void read(const float* pixels, int64_t channels, int64_t image, int64_t line, int64_t pixel,
            int phase, float* square) const {
    lines<kSize, kPhases>(
        image, line, pixel, phase, [&](int index, int64_t place, int64_t from, int64_t to) {
          float* row = square + index * kSize * channels;
          if (to - from < kSize) std::fill_n(row, kSize * channels, 0.0f);
          std::copy_n(pixels + place * channels, (to - from) * channels, row + from * channels);
        });
  }
};

// What a thread computes with: a square of pixels, and the same half transformed.
template <int kStride>
class Workspace {
 public:
  using Rule = Filter<kStride>;
  static constexpr int kPatch = Rule::patch, kPoints = kPatch * kPatch;

  Workspace(const Patches& patches, int64_t channels)
      : patches_(patches), buffer_(2 * kPoints * channels), half_(kPoints * channels) {}

  // Points of all patches of a part. What is `channels` of a line of outputs is a share of them in
  // each of the image's lines that it stands for.
  void read_patches(const float* images, int64_t channels, int64_t part, float* points) {
    const int64_t share = channels / kStride;
    each_square(part, [&](int64_t tile, int64_t image, int64_t line, int64_t pixel, int phase) {
      patches_.template read<kPatch, kStride>(images, share, image, line, pixel, phase, square());
      spread<kPatch, false>(Rule::in, share, points + tile * channels + phase * share, channels);
    });
  }

  // The gradient of images, given that of the points of their patches, which overlap.
  void add_patches(const float* points, int64_t channels, int64_t part, float* images) {
    const int64_t share = channels / kStride;
    each_square(part, [&](int64_t tile, int64_t image, int64_t line, int64_t pixel, int phase) {
      gather<kPatch, true>(Rule::in, share, points + tile * channels + phase * share, channels);
      patches_.template lines<kPatch, kStride>(
          image, line, pixel, phase, [&](int index, int64_t place, int64_t from, int64_t to) {
            const float* row = square() + (index * kPatch + from) * share;
            float* sums = images + place * share;
            for (int64_t entry = 0; entry < (to - from) * share; ++entry) {
              sums[entry] += row[entry];
            }
          });
    });
  }

  // Images, given the points of their patches.
  void write_outputs(const float* points, int64_t channels, const float* bias, int64_t part,
                     float* images) {
    patches_.each(part, [&](int64_t tile, int64_t image, int64_t line, int64_t pixel) {
      gather<kOutputs, false>(Rule::out, channels, points + tile * channels, channels);
      patches_.template lines<kOutputs, 1>(
          image, line, pixel, 0, [&](int index, int64_t place, int64_t from, int64_t to) {
            for (int64_t output = from; output < to; ++output) {
              const float* found = square() + (index * kOutputs + output) * channels;
              float* out = images + (place + output - from) * channels;
              for (int64_t entry = 0; entry < channels; ++entry) out[entry] = found[entry] + bias[entry];
            }
          });
    });
  }

  // The gradient of points, given that of the outputs.
  void read_outputs(const float* images, int64_t channels, int64_t part, float* points) {
    patches_.each(part, [&](int64_t tile, int64_t image, int64_t line, int64_t pixel) {
      patches_.template read<kOutputs, 1>(images, channels, image, line, pixel, 0, square());
      spread<kOutputs, true>(Rule::out, channels, points + tile * channels, channels);
    });
  }

 private:
  const Patches& patches_;
  std::vector<float> buffer_;
  const int64_t half_;

  float* square() { return buffer_.data(); }

  float* half() { return buffer_.data() + half_; }

  // Call a body with the number of each patch, its image, where it begins, and each of its phases.
  template <class Body>
  void each_square(int64_t part, const Body& body) {
    patches_.each(part, [&](int64_t tile, int64_t image, int64_t line, int64_t pixel) {
      for (int phase = 0; phase < kStride; ++phase) {
        body(tile, image, line - Rule::margin, pixel - Rule::margin, phase);
      }
    });
  }

  // From a square of so many pixels to its points, of which each has `all` channels.
  template <int kSize, bool kTransposed, class Matrix>
  void spread(const Matrix& matrix, int64_t channels, float* points, int64_t all) {
    const int64_t line = kSize * channels, step = patches_.tiles * all;
    for (int index = 0; index < kSize; ++index) {
      transform<kPatch, kSize, kTransposed>(matrix, square() + index * channels, line,
                                            half() + index * channels, line, channels);
    }
    for (int index = 0; index < kPatch; ++index) {
      transform<kPatch, kSize, kTransposed>(matrix, half() + index * line, channels,
                                            points + index * kPatch * step, step, channels);
    }
  }

  // From points, of which each has `all` channels, to a square of so many pixels.
  template <int kSize, bool kTransposed, class Matrix>
  void gather(const Matrix& matrix, int64_t channels, const float* points, int64_t all) {
    const int64_t line = kSize * channels, step = patches_.tiles * all;
    for (int index = 0; index < kPatch; ++index) {
      transform<kSize, kPatch, kTransposed>(matrix, points + index * kPatch * step, step,
                                            half() + index * line, channels, channels);
    }
    for (int index = 0; index < kSize; ++index) {
      transform<kSize, kPatch, kTransposed>(matrix, half() + index * channels, line,
                                            square() + index * channels, line, channels);
    }
  }
};

// What a convolution is between: images of (rows, lines, pixels, channels), and outputs a stride
// smaller. Weights have, for each of the points, a row for each channel of the stride x stride
// pixels that one output stands for, and a column for each output.
struct Convolution {
  int64_t rows, height, width, channels, outputs, stride;

  Convolution(const Tensor& outer, const Tensor& weight, int64_t stride, bool grows) : stride(stride) {
    TORCH_CHECK_VALUE(stride == 1 || stride == 2, "bnaf kernels: strides are 1 or 2, got ", stride);
    TORCH_CHECK_VALUE(outer.defined() && outer.dim() == 4 && weight.defined() && weight.dim() == 3,
                      "bnaf kernels: images must have 4 dimensions, and weight 3");
    for (const int64_t size : outer.sizes()) {
      TORCH_CHECK_VALUE(size >= 1 && size <= kMostUnits, "bnaf kernels: no images have shape ",
                        outer.sizes());
    }
    TORCH_CHECK_VALUE(grows || (outer.size(1) % stride == 0 && outer.size(2) % stride == 0),
                      "bnaf kernels: a stride of ", stride, " does not divide ", outer.sizes());
    const int64_t shrink = grows ? 1 : stride;
    rows = outer.size(0), height = outer.size(1) / shrink, width = outer.size(2) / shrink;
    channels = weight.size(1), outputs = weight.size(2);
    TORCH_CHECK_VALUE(channels >= 1 && channels % (kVector * stride * stride) == 0 &&
                          channels <= kMostUnits && outputs >= 1 && outputs % kVector == 0 &&
                          outputs <= kMostUnits,
                      "bnaf kernels: channels must be multiples of ", kVector, ", got weights of ",
                      weight.sizes());
    const int64_t patch = stride == 1 ? Filter<1>::patch : Filter<2>::patch;
    check_tensor("weight", weight, at::kFloat, {patch * patch, channels, outputs});
  }

  Patches patches() const { return {rows, height, width}; }

  std::vector<int64_t> inputs() const {
    return {rows, stride * height, stride * width, channels / (stride * stride)};
  }

  std::vector<int64_t> results() const { return {rows, height, width, outputs}; }
};

template <class Body>
auto for_stride(int64_t stride, const Body& body) {
  if (stride == 1) return body(std::integral_constant<int, 1>());
  return body(std::integral_constant<int, 2>());
}

// Products at each of the points: of the channels of patches by weights.
inline void multiply_points(const Tensor& in, const Tensor& weight, Tensor& out) {
  const int64_t tiles = in.size(1), k = in.size(2), n = weight.size(2);
  const float *entries = in.const_data_ptr<float>(), *weights = weight.const_data_ptr<float>();
  float* found = out.mutable_data_ptr<float>();
  for (int64_t point = 0; point < in.size(0); ++point) {
    const Entries left = {entries + point * tiles * k, k, 1};
    multiply_small(tiles, left, k, weights + point * k * n, n, false, found + point * tiles * n);
  }
}

// Add the gradient of weights: at each of the points, channels of patches by what arrived.
inline void add_points(const Tensor& in, const Tensor& arrived, Tensor& sum) {
  const int64_t tiles = in.size(1), k = in.size(2), n = arrived.size(2);
  const float *entries = in.const_data_ptr<float>(), *grads = arrived.const_data_ptr<float>();
  float* sums = sum.mutable_data_ptr<float>();
  for (int64_t point = 0; point < in.size(0); ++point) {
    const Entries left = {entries + point * tiles * k, 1, k};
    multiply_small(k, left, tiles, grads + point * tiles * n, n, true, sums + point * k * n);
  }
}

// Outputs, given images and the transformed weights.
inline Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride) {
  const Convolution sizes(x, weight, stride, false);
  check_tensor("x", x, at::kFloat, sizes.inputs());
  check_tensor("bias", bias, at::kFloat, {sizes.outputs});
  const Patches patches = sizes.patches();
  Tensor y = at::empty(sizes.results(), x.options());
  const float* images = x.const_data_ptr<float>();
  const float* shift = bias.const_data_ptr<float>();
  float* found = y.mutable_data_ptr<float>();
  for_stride(stride, [&](auto step) {
    at::parallel_for(0, patches.parts(), 1, [&](int64_t from, int64_t to) {
      const at::NoGradGuard no_grad;
      Workspace<step()> workspace(patches, std::max(sizes.channels, sizes.outputs));
      const Tensor in = at::zeros({weight.size(0), patches.tiles, sizes.channels}, x.options());
      Tensor out = at::empty({weight.size(0), patches.tiles, sizes.outputs}, x.options());
      for (int64_t part = from; part < to; ++part) {
        workspace.read_patches(images, sizes.channels, part, in.mutable_data_ptr<float>());
        multiply_points(in, weight, out);
        workspace.write_outputs(out.const_data_ptr<float>(), sizes.outputs, shift, part, found);
      }
    });
  });
  return y;
}

// Pull a gradient of outputs back: add that of images to `found`, where there is a place for it,
// and return that of the transformed weights, where there are images.
inline Tensor pull_back(const Convolution& sizes, const Tensor& weight, const Tensor& grad,
                        const float* images, float* found) {
  const Patches patches = sizes.patches();
  const Tensor back = found ? weight.transpose(1, 2).contiguous() : weight;
  std::vector<Tensor> sums(patches.parts());  // each thread's, at the first part it takes
  const float* arrived = grad.const_data_ptr<float>();
  for_stride(sizes.stride, [&](auto step) {
    at::parallel_for(0, patches.parts(), 1, [&](int64_t from, int64_t to) {
      const at::NoGradGuard no_grad;
      Tensor& sum = sums[from];
      if (images) sum = at::zeros_like(weight);
      Workspace<step()> workspace(patches, std::max(sizes.channels, sizes.outputs));
      const Tensor in = at::zeros({weight.size(0), patches.tiles, sizes.channels}, grad.options());
      const Tensor of_out = at::zeros({weight.size(0), patches.tiles, sizes.outputs}, grad.options());
      Tensor of_in = at::empty_like(in);
      for (int64_t part = from; part < to; ++part) {
        if (patches.count(part) < patches.together) of_out.zero_();  // those before were more
        workspace.read_outputs(arrived, sizes.outputs, part, of_out.mutable_data_ptr<float>());
        if (images) {
          workspace.read_patches(images, sizes.channels, part, in.mutable_data_ptr<float>());
          add_points(in, of_out, sum);
        }
        if (found) {
          multiply_points(of_out, back, of_in);
          workspace.add_patches(of_in.const_data_ptr<float>(), sizes.channels, part, found);
        }
      }
    });
  });
  Tensor total = at::zeros_like(weight);
  for (const Tensor& sum : sums) {
    if (sum.defined()) total.add_(sum);
  }
  return total;
}

// Gradients of images and of the transformed weights.
inline std::tuple<Tensor, Tensor> pull_back_convolution(const Tensor& x, const Tensor& weight,
                                                        const Tensor& grad, int64_t stride) {
  const Convolution sizes(x, weight, stride, false);
  check_tensor("x", x, at::kFloat, sizes.inputs());
  check_tensor("gradient", grad, at::kFloat, sizes.results());
  Tensor grad_x = at::zeros_like(x);
  const Tensor grad_weight =
      pull_back(sizes, weight, grad, x.const_data_ptr<float>(), grad_x.mutable_data_ptr<float>());
  return {grad_x, grad_weight};
}

// The transposed convolution: a stride larger images, given what would be outputs.
inline Tensor convolve_transposed(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                  int64_t stride) {
  const Convolution sizes(x, weight, stride, true);
  check_tensor("x", x, at::kFloat, sizes.results());
  const std::vector<int64_t> larger = sizes.inputs();
  check_tensor("bias", bias, at::kFloat, {larger.back()});
  Tensor y = at::empty(larger, x.options()).copy_(bias);
  pull_back(sizes, weight, x, nullptr, y.mutable_data_ptr<float>());
  return y;
}

// Gradients of what a transposed convolution sees, and of the transformed weights.
inline std::tuple<Tensor, Tensor> pull_back_transposed(const Tensor& x, const Tensor& weight,
                                                       const Tensor& grad, int64_t stride) {
  const Convolution sizes(x, weight, stride, true);
  check_tensor("x", x, at::kFloat, sizes.results());
  check_tensor("gradient", grad, at::kFloat, sizes.inputs());
  const Tensor grad_x = convolve(grad, weight, at::zeros({sizes.outputs}, x.options()), stride);
  return {grad_x, pull_back(sizes, weight, x, grad.const_data_ptr<float>(), nullptr)};
}

}  // namespace bnaf

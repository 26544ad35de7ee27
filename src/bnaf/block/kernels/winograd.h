// Convolutions of 5 x 5 pixels by Winograd's minimal filtering (Lavin and Gray, 2016): a patch of
// 8 x 8 pixels becomes 4 x 4 outputs by 64 products for each pair of channels, in place of 400.
//
// With the matrices B and A below, and U the weights as Python transforms them,
//
//   V = B d B',   M = V U (a product over channels at each of the 64 points),   y = A M A'
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

namespace bnaf {

constexpr int kPatch = 8, kOutputs = 4, kPoints = kPatch * kPatch;
constexpr int kMargin = 2;      // pixels that a patch begins before its outputs
constexpr int64_t kTiles = 48;  // patches that a thread takes at a time, about
constexpr int64_t kVector = 8;  // channels that are computed at once

typedef float Channels __attribute__((vector_size(4 * kVector), aligned(4), may_alias));

// Polynomials are known by their values at 0, 1, -1, 2, -2, 1/2, -1/2 and infinity.
constexpr float kIn[kPatch][kPatch] = {
    {1, 0, -5.25f, 0, 5.25f, 0, -1, 0},        {0, 1, 1, -4.25f, -4.25f, 1, 1, 0},
    {0, -1, 1, 4.25f, -4.25f, -1, 1, 0},       {0, 0.5f, 0.25f, -2.5f, -1.25f, 2, 1, 0},
    {0, -0.5f, 0.25f, 2.5f, -1.25f, -2, 1, 0}, {0, 2, 4, -2.5f, -5, 0.5f, 1, 0},
    {0, -2, 4, 2.5f, -5, -0.5f, 1, 0},         {0, -1, 0, 5.25f, 0, -5.25f, 0, 1}};
constexpr float kOut[kOutputs][kPatch] = {{1, 1, 1, 1, 1, 1, 1, 0},
                                          {0, 1, -1, 2, -2, 0.5f, -0.5f, 0},
                                          {0, 1, 1, 4, 4, 0.25f, 0.25f, 0},
                                          {0, 1, -1, 8, -8, 0.125f, -0.125f, 1}};

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

// Images cut into patches, some images at a time.
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
  template <int kSize, class Body>
  void lines(int64_t image, int64_t line, int64_t pixel, const Body& body) const {
    const int64_t from = std::max<int64_t>(0, -pixel);
    const int64_t to = std::min<int64_t>(kSize, width - pixel);
    for (int index = 0; index < kSize; ++index) {
      const bool within = line + index >= 0 && line + index < height;
      const int64_t place = (image * height + line + index) * width + pixel + from;
      body(index, within ? place : 0, from, within ? to : from);
    }
  }

  // A square of pixels of an image, zero where it reaches beyond.
  template <int kSize>
  void read(const float* pixels, int64_t channels, int64_t image, int64_t line, int64_t pixel,
            float* square) const {
    lines<kSize>(image, line, pixel, [&](int index, int64_t place, int64_t from, int64_t to) {
      float* row = square + index * kSize * channels;
      if (to - from < kSize) std::fill_n(row, kSize * channels, 0.0f);
      std::copy_n(pixels + place * channels, (to - from) * channels, row + from * channels);
    });
  }
};

// What a thread computes with: a square of pixels, and the same half transformed.
class Workspace {
 public:
  Workspace(const Patches& patches, int64_t channels)
      : patches_(patches), buffer_(2 * kPoints * channels), half_(kPoints * channels) {}

  // Points of all patches of a part.
  void read_patches(const float* images, int64_t channels, int64_t part, float* points) {
    patches_.each(part, [&](int64_t tile, int64_t image, int64_t line, int64_t pixel) {
      patches_.read<kPatch>(images, channels, image, line - kMargin, pixel - kMargin, square());
      spread<kPatch, false>(kIn, channels, points + tile * channels);
    });
  }

  // The gradient of images, given that of the points of their patches, which overlap.
  void add_patches(const float* points, int64_t channels, int64_t part, float* images) {
    patches_.each(part, [&](int64_t tile, int64_t image, int64_t line, int64_t pixel) {
      gather<kPatch, true>(kIn, channels, points + tile * channels);
      patches_.lines<kPatch>(
          image, line - kMargin, pixel - kMargin,
          [&](int index, int64_t place, int64_t from, int64_t to) {
            const float* row = square() + (index * kPatch + from) * channels;
            float* sums = images + place * channels;
            for (int64_t entry = 0; entry < (to - from) * channels; ++entry) {
              sums[entry] += row[entry];
            }
          });
    });
  }

  // Images, given the points of their patches.
  void write_outputs(const float* points, int64_t channels, const float* bias, int64_t part,
                     float* images) {
    patches_.each(part, [&](int64_t tile, int64_t image, int64_t line, int64_t pixel) {
      gather<kOutputs, false>(kOut, channels, points + tile * channels);
      patches_.lines<kOutputs>(
          image, line, pixel, [&](int index, int64_t place, int64_t from, int64_t to) {
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
      patches_.read<kOutputs>(images, channels, image, line, pixel, square());
      spread<kOutputs, true>(kOut, channels, points + tile * channels);
    });
  }

 private:
  const Patches& patches_;
  std::vector<float> buffer_;
  const int64_t half_;

  float* square() { return buffer_.data(); }

  float* half() { return buffer_.data() + half_; }

  // From a square of so many pixels to its points.
  template <int kSize, bool kTransposed, class Matrix>
  void spread(const Matrix& matrix, int64_t channels, float* points) {
    const int64_t line = kSize * channels, step = patches_.tiles * channels;
    for (int index = 0; index < kSize; ++index) {
      transform<kPatch, kSize, kTransposed>(matrix, square() + index * channels, line,
                                            half() + index * channels, line, channels);
    }
    for (int index = 0; index < kPatch; ++index) {
      transform<kPatch, kSize, kTransposed>(matrix, half() + index * line, channels,
                                            points + index * kPatch * step, step, channels);
    }
  }

  // From points to a square of so many pixels.
  template <int kSize, bool kTransposed, class Matrix>
  void gather(const Matrix& matrix, int64_t channels, const float* points) {
    const int64_t line = kSize * channels, step = patches_.tiles * channels;
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

inline void check_convolution(const Tensor& x, const Tensor& weight) {
  TORCH_CHECK_VALUE(x.defined() && x.dim() == 4 && weight.defined() && weight.dim() == 3,
                    "bnaf kernels: x must have 4 dimensions, and weight 3");
  const int64_t channels = x.size(3), outputs = weight.size(2);
  for (const int64_t size : x.sizes()) {
    TORCH_CHECK_VALUE(size >= 1 && size <= kMostUnits, "bnaf kernels: no images have shape ", x.sizes());
  }
  TORCH_CHECK_VALUE(channels % kVector == 0 && outputs >= 1 && outputs % kVector == 0 &&
                        outputs <= kMostUnits,
                    "bnaf kernels: channels must be multiples of ", kVector, ", got ", channels, " and ",
                    outputs);
  check_tensor("x", x, at::kFloat, x.sizes());
  check_tensor("weight", weight, at::kFloat, {kPoints, channels, outputs});
}

// Images, given others and the transformed weights.
inline Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_convolution(x, weight);
  check_tensor("bias", bias, at::kFloat, {weight.size(2)});
  const int64_t channels = x.size(3), outputs = weight.size(2);
  const Patches patches(x.size(0), x.size(1), x.size(2));
  Tensor y = at::empty({x.size(0), x.size(1), x.size(2), outputs}, x.options());
  const float* images = x.const_data_ptr<float>();
  const float* shift = bias.const_data_ptr<float>();
  float* found = y.mutable_data_ptr<float>();
  at::parallel_for(0, patches.parts(), 1, [&](int64_t from, int64_t to) {
    const at::NoGradGuard no_grad;
    Workspace workspace(patches, std::max(channels, outputs));
    const Tensor in = at::zeros({kPoints, patches.tiles, channels}, x.options());
    Tensor out = at::empty({kPoints, patches.tiles, outputs}, x.options());
    for (int64_t part = from; part < to; ++part) {
      workspace.read_patches(images, channels, part, in.mutable_data_ptr<float>());
      at::bmm_out(out, in, weight);
      workspace.write_outputs(out.const_data_ptr<float>(), outputs, shift, part, found);
    }
  });
  return y;
}

// Gradients of images and of the transformed weights.
inline std::tuple<Tensor, Tensor> pull_back_convolution(const Tensor& x, const Tensor& weight,
                                                        const Tensor& grad) {
  check_convolution(x, weight);
  check_tensor("gradient", grad, at::kFloat, {x.size(0), x.size(1), x.size(2), weight.size(2)});
  const int64_t channels = x.size(3), outputs = weight.size(2);
  const Patches patches(x.size(0), x.size(1), x.size(2));
  Tensor grad_x = at::zeros_like(x);
  const Tensor back = weight.transpose(1, 2).contiguous();
  std::vector<Tensor> sums(patches.parts());  // each thread's, at the first part it takes
  const float* images = x.const_data_ptr<float>();
  const float* arrived = grad.const_data_ptr<float>();
  float* found = grad_x.mutable_data_ptr<float>();
  at::parallel_for(0, patches.parts(), 1, [&](int64_t from, int64_t to) {
    const at::NoGradGuard no_grad;
    Tensor& sum = sums[from] = at::zeros_like(weight);
    Workspace workspace(patches, std::max(channels, outputs));
    const Tensor in = at::zeros({kPoints, patches.tiles, channels}, x.options());
    const Tensor of_out = at::zeros({kPoints, patches.tiles, outputs}, x.options());
    Tensor of_in = at::empty_like(in);
    for (int64_t part = from; part < to; ++part) {
      if (patches.count(part) < patches.together) of_out.zero_();  // those before were more
      workspace.read_patches(images, channels, part, in.mutable_data_ptr<float>());
      workspace.read_outputs(arrived, outputs, part, of_out.mutable_data_ptr<float>());
      at::bmm_out(of_in, of_out, back);
      sum.baddbmm_(in.transpose(1, 2), of_out);
      workspace.add_patches(of_in.const_data_ptr<float>(), channels, part, found);
    }
  });
  Tensor grad_weight = at::zeros_like(weight);
  for (const Tensor& sum : sums) {
    if (sum.defined()) grad_weight.add_(sum);
  }
  return {grad_x, grad_weight};
}

}  // namespace bnaf

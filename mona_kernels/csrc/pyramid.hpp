// Levels of a feature pyramid, and rows of it upsampled at chosen pixels: four taps a level, corners on corners.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "clones.hpp"
#include "parallel.hpp"
#include "vector_math.hpp"

namespace mona {

template <typename T>
struct Level {  // B c h w with any strides; T is const where it is only read
  T* data;
  int64_t count, channels, height, width;
  int64_t s_image, s_channel, s_row, s_column;

  T* at(int64_t b, int64_t y, int64_t x) const { return data + b * s_image + y * s_row + x * s_column; }
};

// Where positions 0..size-1 fall among `source` samples: left tap, and the share of the right one in units of 1/span.
// In integers, so that a position on a sample has share 0.
struct Taps {
  int64_t span, source;
  std::vector<int64_t> left, share;

  Taps(int64_t size, int64_t source_) : span(std::max<int64_t>(size - 1, 1)), source(source_), left(size), share(size) {
    for (int64_t k = 0; k < size; ++k) {
      left[k] = k * (source - 1) / span;
      share[k] = k * (source - 1) - left[k] * span;
    }
  }
  int64_t right(int64_t k) const { return std::min(left[k] + 1, source - 1); }
  double weight(int64_t k) const { return static_cast<double>(share[k]) / static_cast<double>(span); }
};

template <typename T>
MONA_CLONES void add_scaled(const T* MONA_RESTRICT from, T weight, T* MONA_RESTRICT to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
}

// The channels of a pixel lie together (channels_last, what training has) or apart.
template <typename T>
void add_scaled(const T* from, int64_t s_from, T weight, T* to, int64_t s_to, int64_t count) {
  if (s_from == 1 && s_to == 1) return add_scaled(from, weight, to, count);
  for (int64_t i = 0; i < count; ++i) to[i * s_to] += weight * from[i * s_from];
}

// The taps of one pixel in one level; a tap of weight 0 is not touched, so what lies there does not matter.
template <typename T, typename Body>
void for_each_tap(const Taps& down, const Taps& across, int64_t y, int64_t x, Body&& body) {
  const double fy = down.weight(y), fx = across.weight(x);
  const int64_t ys[2] = {down.left[y], down.right(y)}, xs[2] = {across.left[x], across.right(x)};
  const double wy[2] = {1 - fy, fy}, wx[2] = {1 - fx, fx};
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const T weight = static_cast<T>(wy[i] * wx[j]);
      if (weight != T{0}) body(ys[i], xs[j], weight);
    }
}

template <typename T>
struct Pyramid {
  std::vector<Level<T>> levels;
  std::vector<Taps> down, across;
  int64_t height, width, channels = 0;

  Pyramid(std::vector<Level<T>> levels_, int64_t height_, int64_t width_)
      : levels(std::move(levels_)), height(height_), width(width_) {
    for (const auto& level : levels) {
      down.emplace_back(height, level.height);
      across.emplace_back(width, level.width);
      channels += level.channels;
    }
  }
  bool is_full_size(size_t l) const { return levels[l].height == height && levels[l].width == width; }
};

// Rows (count, sum of channels); a pixel below 0 gives zeros.
template <typename T>
void pyramid_gather(const Pyramid<const T>& pyramid, const int64_t* pixels, int64_t count, T* rows, int threads) {
  constexpr int64_t block = 16;
  parallel_for((count + block - 1) / block, threads, [&](long task, int) {
    for (int64_t n = task * block; n < std::min(count, (task + 1) * block); ++n) {
      T* out = rows + n * pyramid.channels;
      std::fill(out, out + pyramid.channels, T{0});
      if (pixels[n] < 0) continue;
      const int64_t b = pixels[n] / (pyramid.height * pyramid.width);
      const int64_t place = pixels[n] % (pyramid.height * pyramid.width);
      for (size_t l = 0; l < pyramid.levels.size(); ++l) {
        const auto& level = pyramid.levels[l];
        for_each_tap<T>(pyramid.down[l], pyramid.across[l], place / pyramid.width, place % pyramid.width,
                        [&](int64_t y, int64_t x, T weight) {
                          add_scaled(level.at(b, y, x), level.s_channel, weight, out, 1, level.channels);
                        });
        out += level.channels;
      }
    }
  });
}

// The adjoint: adds rows to levels that are zero.  A worker owns some channels of a
// level and takes all rows in their order, so the sums are the same for any number of threads.
template <typename T>
void pyramid_scatter(const Pyramid<T>& pyramid, const int64_t* pixels, int64_t count, const T* rows, int threads) {
  struct Share {
    size_t level;
    int64_t offset, first, last;
  };
  constexpr int64_t block = 64;
  std::vector<Share> shares;
  int64_t offset = 0;
  for (size_t l = 0; l < pyramid.levels.size(); ++l) {
    const int64_t channels = pyramid.levels[l].channels;
    for (int64_t k = 0; k < channels; k += block) shares.push_back({l, offset, k, std::min(channels, k + block)});
    offset += channels;
  }
  parallel_for(static_cast<long>(shares.size()), threads, [&](long task, int) {
    const Share& share = shares[task];
    const auto& level = pyramid.levels[share.level];
    for (int64_t n = 0; n < count; ++n) {
      if (pixels[n] < 0) continue;
      const int64_t b = pixels[n] / (pyramid.height * pyramid.width);
      const int64_t place = pixels[n] % (pyramid.height * pyramid.width);
      const T* from = rows + n * pyramid.channels + share.offset + share.first;
      for_each_tap<T>(pyramid.down[share.level], pyramid.across[share.level], place / pyramid.width,
                      place % pyramid.width, [&](int64_t y, int64_t x, T weight) {
                        add_scaled(from, 1, weight, level.at(b, y, x) + share.first * level.s_channel, level.s_channel,
                                   share.last - share.first);
                      });
    }
  });
}

}  // namespace mona

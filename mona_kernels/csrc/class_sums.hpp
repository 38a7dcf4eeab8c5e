// Sums of the upsampled pyramid over the pixels of each class: class masks go down, features never go up.
//
// <mask, U f> = <U^T mask, f>.  U^T is separable: a row of labels is first gathered into the columns of a level, in
// whole numbers (shares of 1/span), then shared between two rows of the level.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "clones.hpp"
#include "parallel.hpp"
#include "pyramid.hpp"
#include "vector_math.hpp"

namespace mona {

// Labels of one row as weights (columns of the level, classes), in units of 1/span; runs of one class at a time.
class ColumnShares {
 public:
  ColumnShares(const Taps& across, int64_t classes)
      : across_(across), classes_(classes), sums_(across.left.size() + 1, 0), start_(across.source + 1, 0) {
    const int64_t width = static_cast<int64_t>(across.left.size());
    for (int64_t x = 0; x < width; ++x) sums_[x + 1] = sums_[x] + across.share[x];
    for (int64_t j = 0; j <= across.source; ++j)
      start_[j] = std::lower_bound(across.left.begin(), across.left.end(), j) - across.left.begin();
  }

  template <typename T>
  void of(const int16_t* labels, T* weights) const {
    const int64_t width = static_cast<int64_t>(across_.left.size());
    std::fill(weights, weights + across_.source * classes_, T{0});
    for (int64_t x = 0; x < width;) {
      const int16_t c = labels[x];
      const int64_t first = x;
      while (x < width && labels[x] == c) ++x;
      if (c < 0 || c >= classes_) continue;
      for (int64_t from = first; from < x;) {  // the part of the run that lies between two columns of the level
        const int64_t j = across_.left[from], to = std::min(x, start_[j + 1]);
        const int64_t right = sums_[to] - sums_[from];
        weights[j * classes_ + c] += static_cast<T>((to - from) * across_.span - right);
        if (right) weights[(j + 1) * classes_ + c] += static_cast<T>(right);
        from = to;
      }
    }
  }

 private:
  const Taps& across_;
  int64_t classes_;
  std::vector<int64_t> sums_;   // of shares before a position
  std::vector<int64_t> start_;  // the first position whose left tap is at least j
};

// Adds pixels of a row, their channels together and `step` apart, to the sums of one class: those at `columns`, with
// their weights.  Sums of a block of channels stay in registers.
template <typename T>
MONA_CLONES void add_pixels(const T* MONA_RESTRICT row, int64_t step, const int32_t* MONA_RESTRICT columns,
                            const T* MONA_RESTRICT weights, int64_t count, T* MONA_RESTRICT sums, int64_t channels) {
  constexpr int64_t block = 16;
  int64_t k = 0;
  for (; k + block <= channels; k += block) {
    T sum[block];
    for (int64_t i = 0; i < block; ++i) sum[i] = sums[k + i];
    for (int64_t n = 0; n < count; ++n) {
      const T* pixel = row + columns[n] * step + k;
      for (int64_t i = 0; i < block; ++i) sum[i] += weights[n] * pixel[i];
    }
    for (int64_t i = 0; i < block; ++i) sums[k + i] = sum[i];
  }
  for (; k < channels; ++k)
    for (int64_t n = 0; n < count; ++n) sums[k] += weights[n] * row[columns[n] * step + k];
}

// The same for a level of full size, where a pixel's label is its whole weight: runs of one class at a time.
template <typename T>
MONA_CLONES void add_labelled(const T* MONA_RESTRICT row, int64_t step, const int16_t* MONA_RESTRICT labels,
                              int64_t width, int64_t classes, T* MONA_RESTRICT sums, int64_t channels) {
  constexpr int64_t block = 16;
  for (int64_t x = 0; x < width;) {
    const int64_t c = labels[x], first = x;
    while (x < width && labels[x] == c) ++x;
    if (c < 0 || c >= classes) continue;
    int64_t k = 0;
    for (; k + block <= channels; k += block) {
      T sum[block];
      for (int64_t i = 0; i < block; ++i) sum[i] = sums[c * channels + k + i];
      for (int64_t n = first; n < x; ++n)
        for (int64_t i = 0; i < block; ++i) sum[i] += row[n * step + k + i];
      for (int64_t i = 0; i < block; ++i) sums[c * channels + k + i] = sum[i];
    }
    for (; k < channels; ++k)
      for (int64_t n = first; n < x; ++n) sums[c * channels + k] += row[n * step + k];
  }
}

// A few rows of one level and image: what is added up per band does not depend on the number of threads.
struct Band {
  static constexpr int64_t ROWS = 8;  // rows of labels that touch two bands are looked at twice
  size_t level;
  int64_t image, first, last, offset;  // offset: channels of the levels before
};

template <typename P>
std::vector<Band> bands_of(const Pyramid<P>& pyramid) {
  std::vector<Band> bands;
  int64_t offset = 0;
  for (size_t l = 0; l < pyramid.levels.size(); offset += pyramid.levels[l++].channels)
    for (int64_t b = 0; b < pyramid.levels[l].count; ++b)
      for (int64_t y = 0; y < pyramid.levels[l].height; y += Band::ROWS)
        bands.push_back({l, b, y, std::min(pyramid.levels[l].height, y + Band::ROWS), offset});
  return bands;
}

// Calls body(number of the band, row, weights (w, C)) for every row of every band; `skip_full_size` does so without
// weights where labels say the same.
template <typename T, bool skip_full_size, typename P, typename Body>
void for_each_weighted_row(const Pyramid<P>& pyramid, const std::vector<Band>& bands, const int16_t* known,
                           int64_t classes, int threads, Body&& body) {
  std::vector<ColumnShares> columns;
  for (const auto& across : pyramid.across) columns.emplace_back(across, classes);
  parallel_for(static_cast<long>(bands.size()), threads, [&](long n, int) {
    const Band& band = bands[n];
    if (skip_full_size && pyramid.is_full_size(band.level)) {
      for (int64_t y = band.first; y < band.last; ++y) body(n, y, static_cast<const T*>(nullptr));
      return;
    }
    const Taps& down = pyramid.down[band.level];
    const int64_t rows = band.last - band.first, length = pyramid.levels[band.level].width * classes;
    std::vector<T> weights(rows * length, T{0}), shares(length);
    const T unit = T{1} / static_cast<T>(pyramid.across[band.level].span);
    const auto from = std::lower_bound(down.left.begin(), down.left.end(), band.first - 1) - down.left.begin();
    for (int64_t y = from; y < pyramid.height && down.left[y] < band.last; ++y) {
      const T lower = static_cast<T>(down.weight(y)), upper = T{1} - lower;
      const int64_t row = down.left[y] - band.first;
      const bool touches[2] = {row >= 0, row + 1 < rows && lower != T{0}};
      if (!touches[0] && !touches[1]) continue;
      columns[band.level].of(known + (band.image * pyramid.height + y) * pyramid.width, shares.data());
      if (touches[0]) add_scaled(shares.data(), upper * unit, weights.data() + row * length, length);
      if (touches[1]) add_scaled(shares.data(), lower * unit, weights.data() + (row + 1) * length, length);
    }
    for (int64_t y = 0; y < rows; ++y) body(n, band.first + y, weights.data() + y * length);
  });
}

// Sums (C, sum of channels), added up in T within a band and in double over the bands.
template <typename T>
void class_sums(const Pyramid<const T>& pyramid, const int16_t* known, int64_t classes, T* sums, int threads) {
  const auto bands = bands_of(pyramid);
  std::vector<std::vector<T>> partial(bands.size());
  const auto add = [&](long n, int64_t y, const T* weights) {
    const Band& band = bands[n];
    const auto& level = pyramid.levels[band.level];
    partial[n].resize(classes * level.channels, T{0});
    const T* row = level.at(band.image, y, 0);
    int64_t step = level.s_column;
    std::vector<T> together;
    if (level.s_channel != 1) {  // a row at a time is brought into the order that the sum likes
      step = level.channels;
      together.resize(level.width * step);
      for (int64_t k = 0; k < level.channels; ++k)
        for (int64_t x = 0; x < level.width; ++x)
          together[x * step + k] = row[k * level.s_channel + x * level.s_column];
      row = together.data();
    }
    if (!weights) {
      add_labelled(row, step, known + (band.image * pyramid.height + y) * pyramid.width, level.width, classes,
                   partial[n].data(), level.channels);
      return;
    }
    std::vector<int32_t> columns(level.width);
    std::vector<T> shares(level.width);
    for (int64_t c = 0; c < classes; ++c) {
      int64_t count = 0;
      for (int64_t x = 0; x < level.width; ++x) {  // without a branch: whose pixel is next cannot be predicted
        columns[count] = static_cast<int32_t>(x);
        shares[count] = weights[x * classes + c];
        count += shares[count] != T{0};
      }
      add_pixels(row, step, columns.data(), shares.data(), count, partial[n].data() + c * level.channels,
                 level.channels);
    }
  };
  for_each_weighted_row<T, true>(pyramid, bands, known, classes, threads, add);
  std::vector<double> total(classes * pyramid.channels, 0.0);
  for (size_t n = 0; n < bands.size(); ++n) {
    const int64_t channels = pyramid.levels[bands[n].level].channels;
    for (int64_t c = 0; c < classes; ++c)
      for (int64_t k = 0; k < channels; ++k)
        total[c * pyramid.channels + bands[n].offset + k] += static_cast<double>(partial[n][c * channels + k]);
  }
  for (size_t i = 0; i < total.size(); ++i) sums[i] = static_cast<T>(total[i]);
}

// The gradient of a feature: its weights (C) times the gradients of the sums (C, channels).
template <typename T>
void class_sums_backward(const Pyramid<T>& pyramid, const int16_t* known, int64_t classes, const T* grad, int threads) {
  const auto bands = bands_of(pyramid);
  const auto write = [&](long n, int64_t y, const T* weights) {
    const auto& level = pyramid.levels[bands[n].level];
    for (int64_t x = 0; x < level.width; ++x) {
      T* to = level.at(bands[n].image, y, x);
      for (int64_t k = 0; k < level.channels; ++k) to[k * level.s_channel] = T{0};
      for (int64_t c = 0; c < classes; ++c)
        if (const T weight = weights[x * classes + c]; weight != T{0})
          add_scaled(grad + c * pyramid.channels + bands[n].offset, 1, weight, to, level.s_channel, level.channels);
    }
  };
  for_each_weighted_row<T, false>(pyramid, bands, known, classes, threads, write);
}

}  // namespace mona

// L_eqv and its gradient in one pass: warp, renormalise, softmax, both KLs, mask (method 4.4, decision 7).
//
// Most pixels lie outside the mask and cost one look at it; those of a row that count are put side by side, so that
// exp and log run over vectors of pixels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "clones.hpp"
#include "parallel.hpp"
#include "pyramid.hpp"
#include "vector_math.hpp"

namespace mona {

constexpr double LEAST = 1e-6;  // probabilities are clamped to this before the logarithm

// Loops over n pixels side by side, one class at a time.
template <typename T>
struct PixelLoops {
  MONA_CLONES static void raise(const T* MONA_RESTRICT x, T* MONA_RESTRICT top, int64_t n) {
    for (int64_t i = 0; i < n; ++i) top[i] = x[i] > top[i] ? x[i] : top[i];
  }
  MONA_CLONES static void add_exp(const T* MONA_RESTRICT x, const T* MONA_RESTRICT top, T* MONA_RESTRICT total,
                                  int64_t n) {
    for (int64_t i = 0; i < n; ++i) total[i] += fast_exp(x[i] - top[i]);
  }
  MONA_CLONES static void to_log_sum(const T* MONA_RESTRICT top, T* MONA_RESTRICT total, int64_t n) {
    for (int64_t i = 0; i < n; ++i) total[i] = top[i] + fast_log(total[i]);
  }
  // x becomes the softmax, p the gradient with respect to log q: d/dlog_q of (p - q)(log p - log q) is
  // q - p - q (log p - log q), and 0 where log q is held at its least.
  MONA_CLONES static void compare(T* MONA_RESTRICT x, T* MONA_RESTRICT p, const T* MONA_RESTRICT log_sum,
                                  T* MONA_RESTRICT value, T* MONA_RESTRICT sum, T lowest, int64_t n) {
    const T least = static_cast<T>(LEAST);
    for (int64_t i = 0; i < n; ++i) {
      const T exact = x[i] - log_sum[i], log_q = exact < lowest ? lowest : exact;
      const T target = p[i] < least ? least : p[i], q = fast_exp(log_q), apart = fast_log(target) - log_q;
      const T own = q - target - q * apart;
      value[i] += (target - q) * apart;
      p[i] = exact < lowest ? T{0} : own;
      sum[i] += p[i];
      x[i] = fast_exp(exact);
    }
  }
  // through the softmax a gradient g becomes g_c - softmax_c sum g
  MONA_CLONES static void through_softmax(T* MONA_RESTRICT x, const T* MONA_RESTRICT own, const T* MONA_RESTRICT sum,
                                          const T* MONA_RESTRICT weight, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = weight[i] * (own[i] - x[i] * sum[i]);
  }
};

// Targets and logits (C, n), classes `stride` apart.  `value` becomes a pixel's symmetric KL, logits its gradient times
// the weight; targets are used up.
template <typename T>
void symmetric_kl(T* target, T* logits, const T* weight, T* value, T* scratch, int64_t classes, int64_t stride,
                  int64_t n) {
  T *top = scratch, *log_sum = scratch + stride, *sum = scratch + 2 * stride;
  const T lowest = static_cast<T>(std::log(LEAST));
  std::copy(logits, logits + n, top);
  for (T* zero : {log_sum, sum, value}) std::fill(zero, zero + n, T{0});
  for (int64_t c = 1; c < classes; ++c) PixelLoops<T>::raise(logits + c * stride, top, n);
  for (int64_t c = 0; c < classes; ++c) PixelLoops<T>::add_exp(logits + c * stride, top, log_sum, n);
  PixelLoops<T>::to_log_sum(top, log_sum, n);
  for (int64_t c = 0; c < classes; ++c)
    PixelLoops<T>::compare(logits + c * stride, target + c * stride, log_sum, value, sum, lowest, n);
  for (int64_t c = 0; c < classes; ++c)
    PixelLoops<T>::through_softmax(logits + c * stride, target + c * stride, sum, weight, n);
}

// points B H W 2 as (x, y); gradient B C H W, not yet divided by an image's weight.  Writes, per image, the sum of
// weights and of weighted values.
template <typename T>
void equivariance(const Level<const T>& probabilities, const Level<const T>& mask, const Level<const T>& points,
                  const Level<const T>& logits, const Level<T>& gradient, double* weights, double* values,
                  int threads) {
  const int64_t height = probabilities.height, width = probabilities.width, classes = probabilities.channels;
  std::vector<double> row_weights(probabilities.count * height), row_values(row_weights.size());
  parallel_for(static_cast<long>(row_weights.size()), threads, [&](long r, int) {
    const int64_t b = r / height, y = r % height;
    std::vector<T> space(width * (2 * classes + 5));
    T *target = space.data(), *row = target + width * classes, *weight = row + width * classes, *value = weight + width;
    std::vector<int64_t> column(width);
    int64_t n = 0;
    for (int64_t x = 0; x < width; ++x) {
      const T* point = points.at(b, y, x);
      // grid_sample's own arithmetic, corners aligned
      const T px = (point[0] + 1) * (static_cast<T>(width - 1) / 2);
      const T py = (point[points.s_channel] + 1) * (static_cast<T>(height - 1) / 2);
      if (!(px > -1 && px < static_cast<T>(width) && py > -1 && py < static_cast<T>(height))) continue;  // NaN too
      const int64_t left = static_cast<int64_t>(px + 1) - 1, top = static_cast<int64_t>(py + 1) - 1;  // rounded down
      const T fx = px - static_cast<T>(left), fy = py - static_cast<T>(top);
      const bool there[4] = {top >= 0 && left >= 0, top >= 0 && left + 1 < width, top + 1 < height && left >= 0,
                             top + 1 < height && left + 1 < width};
      const T share[4] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
      T inside = 0, masked = 0;
      for (int k = 0; k < 4; ++k)
        if (there[k]) {
          inside += share[k];
          masked += share[k] * *mask.at(b, top + (k >> 1), left + (k & 1));
        }
      if (!(inside > 0) || masked == 0) continue;
      const T by = 1 / std::max(inside, static_cast<T>(LEAST));
      for (int64_t c = 0; c < classes; ++c) target[c * width + n] = 0;
      for (int k = 0; k < 4; ++k)
        if (there[k]) {
          const T* p = probabilities.at(b, top + (k >> 1), left + (k & 1));
          for (int64_t c = 0; c < classes; ++c)
            target[c * width + n] += share[k] * by * p[c * probabilities.s_channel];
        }
      const T* l = logits.at(b, y, x);
      for (int64_t c = 0; c < classes; ++c) row[c * width + n] = l[c * logits.s_channel];
      weight[n] = masked;
      column[n++] = x;
    }
    symmetric_kl(target, row, weight, value, value + width, classes, width, n);
    double sum = 0, total = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += static_cast<double>(weight[i]);
      total += static_cast<double>(weight[i]) * static_cast<double>(value[i]);
    }
    row_weights[r] = sum;
    row_values[r] = total;
    for (int64_t x = 0, i = 0; x < width; ++x) {
      T* to = gradient.at(b, y, x);
      const bool counts = i < n && column[i] == x;
      for (int64_t c = 0; c < classes; ++c) to[c * gradient.s_channel] = counts ? row[c * width + i] : T{0};
      i += counts;
    }
  });
  for (int64_t b = 0; b < probabilities.count; ++b) {
    weights[b] = values[b] = 0;
    for (int64_t y = 0; y < height; ++y) weights[b] += row_weights[b * height + y], values[b] += row_values[b * height + y];
  }
}

}  // namespace mona

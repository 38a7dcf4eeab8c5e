// L_eqv and its gradient in one pass: warp, renormalise, softmax, both KLs, mask (METHOD 4.4, Decision 7).
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

constexpr double LEAST = 1e-6;  // of a probability, before its logarithm

// Pixels of one row that count, each a column: targets and logits (C, n).  `value` is the pixel's symmetric KL;
// logits become its gradient times the weight.
template <typename T>
MONA_CLONES void symmetric_kl(const T* target, T* logits, const T* weight, T* value, T* scratch, int64_t classes,
                              int64_t stride, int64_t n) {
  const T floor = static_cast<T>(std::log(LEAST)), least = static_cast<T>(LEAST);
  T *top = scratch, *total = scratch + stride, *mean = scratch + 2 * stride;
  for (int64_t i = 0; i < n; ++i) top[i] = logits[i];
  for (int64_t c = 1; c < classes; ++c)
    for (int64_t i = 0; i < n; ++i) {
      const T x = logits[c * stride + i];
      top[i] = x > top[i] ? x : top[i];
    }
  for (int64_t i = 0; i < n; ++i) total[i] = T{0};
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t i = 0; i < n; ++i) total[i] += fast_exp(logits[c * stride + i] - top[i]);
  for (int64_t i = 0; i < n; ++i) total[i] = top[i] + fast_log(total[i]), value[i] = mean[i] = T{0};
  // d/dlog_q of (p - q)(log p - log q) is q - p - q (log p - log q), and 0 below the floor; through the softmax a
  // gradient g becomes g_c - softmax_c sum g.
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t i = 0; i < n; ++i) {
      const T exact = logits[c * stride + i] - total[i];
      const T log_q = exact < floor ? floor : exact;
      T p = target[c * stride + i];
      p = p < least ? least : p;
      const T q = fast_exp(log_q), apart = fast_log(p) - log_q;
      value[i] += (p - q) * apart;
      mean[i] += exact < floor ? T{0} : q - p - q * apart;
    }
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t i = 0; i < n; ++i) {
      const T exact = logits[c * stride + i] - total[i];
      T p = target[c * stride + i];
      p = p < least ? least : p;
      const T log_q = exact < floor ? floor : exact;
      const T q = fast_exp(log_q), apart = fast_log(p) - log_q;
      const T own = exact < floor ? T{0} : q - p - q * apart;
      logits[c * stride + i] = weight[i] * (own - fast_exp(exact) * mean[i]);
    }
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
      const T left = std::floor(px), top = std::floor(py), fx = px - left, fy = py - top;
      const int64_t xs[2] = {static_cast<int64_t>(left), static_cast<int64_t>(left) + 1};
      const int64_t ys[2] = {static_cast<int64_t>(top), static_cast<int64_t>(top) + 1};
      const T wx[2] = {1 - fx, fx}, wy[2] = {1 - fy, fy};
      T inside = 0, masked = 0;
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
          if (ys[i] >= 0 && ys[i] < height && xs[j] >= 0 && xs[j] < width) {
            inside += wy[i] * wx[j];
            masked += wy[i] * wx[j] * *mask.at(b, ys[i], xs[j]);
          }
      if (!(inside > 0) || masked == 0) continue;
      for (int64_t c = 0; c < classes; ++c) target[c * width + n] = 0;
      const T by = 1 / std::max(inside, static_cast<T>(LEAST));
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
          if (ys[i] >= 0 && ys[i] < height && xs[j] >= 0 && xs[j] < width) {
            const T* p = probabilities.at(b, ys[i], xs[j]);
            const T share = wy[i] * wx[j] * by;
            for (int64_t c = 0; c < classes; ++c) target[c * width + n] += share * p[c * probabilities.s_channel];
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

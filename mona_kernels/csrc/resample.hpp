// Corner-aligned resampling of stacks of slices, with the arithmetic of scipy.ndimage.zoom.
//
// Output index k reads input coordinate k * (in - 1) / (out - 1): corners fall on corners.
// A coordinate that rounding has pushed past the last pixel is the last pixel (scipy's mode "nearest").
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "clones.hpp"
#include "parallel.hpp"

namespace mona {

inline double corner_step(long in, long out) {
  return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 1.0;
}

inline std::vector<int> nearest_taps(long in, long out) {
  std::vector<int> taps(out);
  const double step = corner_step(in, out);
  for (long k = 0; k < out; ++k)
    taps[k] = static_cast<int>(std::min<long>(static_cast<long>(std::floor(k * step + 0.5)), in - 1));
  return taps;
}

struct LinearTaps {
  std::vector<int> low, high;
  std::vector<float> weight;  // of `high`

  LinearTaps(long in, long out) : low(out), high(out), weight(out) {
    const double step = corner_step(in, out);
    for (long k = 0; k < out; ++k) {
      const double at = std::min(k * step, static_cast<double>(in - 1));
      low[k] = static_cast<int>(at);
      high[k] = static_cast<int>(std::min<long>(low[k] + 1, in - 1));
      weight[k] = static_cast<float>(at - low[k]);
    }
  }
};

template <typename T>
void resize_nearest(const T* in, T* out, long n, long h, long w, long H, long W, int threads) {
  const auto rows = nearest_taps(h, H), cols = nearest_taps(w, W);
  parallel_for(n, threads, [&](long s, int) {
    for (long Y = 0; Y < H; ++Y) {
      const T* from = in + (s * h + rows[Y]) * w;
      T* to = out + (s * H + Y) * W;
      for (long X = 0; X < W; ++X) to[X] = from[cols[X]];
    }
  });
}

MONA_CLONES inline void stretch_row(const float* from, float* to, const LinearTaps& cols, long W) {
  const int* low = cols.low.data();
  const int* high = cols.high.data();
  const float* weight = cols.weight.data();
  for (long X = 0; X < W; ++X) {
    const float a = from[low[X]], b = from[high[X]];
    to[X] = a + weight[X] * (b - a);
  }
}

MONA_CLONES inline void blend_rows(const float* a, const float* b, float weight, float* to, long W) {
  for (long X = 0; X < W; ++X) to[X] = a[X] + weight * (b[X] - a[X]);
}

// The two input rows around one output row, stretched to output width.  Neighbouring output rows mostly
// need the same two, so each input row is stretched once.
class RowPair {
 public:
  explicit RowPair(long W) : first_(W), second_(W) {}

  void move_to(const float* plane, long w, const LinearTaps& cols, int low, int high) {
    if (low == first_row_) return;
    if (low == second_row_) {
      std::swap(first_, second_);
    } else {
      stretch_row(plane + low * w, first_.data(), cols, static_cast<long>(first_.size()));
    }
    stretch_row(plane + high * w, second_.data(), cols, static_cast<long>(second_.size()));
    first_row_ = low;
    second_row_ = high;
  }
  const float* first() const { return first_.data(); }
  const float* second() const { return second_.data(); }

 private:
  std::vector<float> first_, second_;
  int first_row_ = -1, second_row_ = -1;
};

inline void resize_linear(const float* in, float* out, long n, long h, long w, long H, long W, int threads) {
  const LinearTaps rows(h, H), cols(w, W);
  parallel_for(n, threads, [&](long s, int) {
    RowPair pair(W);
    for (long Y = 0; Y < H; ++Y) {
      pair.move_to(in + s * h * w, w, cols, rows.low[Y], rows.high[Y]);
      blend_rows(pair.first(), pair.second(), rows.weight[Y], out + (s * H + Y) * W, W);
    }
  });
}

template <typename Label>
MONA_CLONES void take_larger(const float* value, Label id, float* best, Label* label, long count) {
  for (long i = 0; i < count; ++i) {
    const bool larger = value[i] > best[i];  // strict: the first of equal classes wins, as in numpy.argmax
    best[i] = larger ? value[i] : best[i];
    label[i] = larger ? id : label[i];
  }
}

// Logits (n, classes, h, w) -> class indices (n, H, W): linear resize and argmax in one sweep.  What it holds
// beside the result is two rows per class and thread, never classes x H x W floats.
template <typename Label>
void argmax_linear(const float* logits, Label* out, long n, long classes, long h, long w, long H, long W,
                   int threads) {
  const LinearTaps rows(h, H), cols(w, W);
  parallel_for(n, threads, [&](long s, int) {
    std::vector<RowPair> pairs(classes, RowPair(W));
    std::vector<float> best(W), value(W);
    for (long Y = 0; Y < H; ++Y) {
      Label* label = out + (s * H + Y) * W;
      std::fill(label, label + W, Label{0});
      for (long c = 0; c < classes; ++c) {
        pairs[c].move_to(logits + (s * classes + c) * h * w, w, cols, rows.low[Y], rows.high[Y]);
        blend_rows(pairs[c].first(), pairs[c].second(), rows.weight[Y], c ? value.data() : best.data(), W);
        if (c) take_larger(value.data(), static_cast<Label>(c), best.data(), label, W);
      }
    }
  });
}

// The published order (method 1.5.1): argmax at the network's size, then nearest.
template <typename Label>
void argmax_nearest(const float* logits, Label* out, long n, long classes, long h, long w, long H, long W,
                    int threads) {
  const auto rows = nearest_taps(h, H), cols = nearest_taps(w, W);
  parallel_for(n, threads, [&](long s, int) {
    const float* plane = logits + s * classes * h * w;
    std::vector<float> best(plane, plane + h * w);
    std::vector<Label> label(h * w, Label{0});
    for (long c = 1; c < classes; ++c)
      take_larger(plane + c * h * w, static_cast<Label>(c), best.data(), label.data(), h * w);
    for (long Y = 0; Y < H; ++Y)
      for (long X = 0; X < W; ++X) out[(s * H + Y) * W + X] = label[rows[Y] * w + cols[X]];
  });
}

}  // namespace mona

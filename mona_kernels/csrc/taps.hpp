// Resampling by given taps: every output pixel is a weighted sum of neighbouring input pixels, per axis.
//
// Which pixels and weights is decided in mona_kernels/taps.py (area average or linear); here they are only applied.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "clones.hpp"
#include "parallel.hpp"
#include "resample.hpp"

namespace mona {

struct Taps {
  const int* first;     // first[k]: the first input pixel of output pixel k
  const float* weight;  // weight[t * count + k]: that of input pixel first[k] + t
  long width, count;
};

MONA_CLONES inline void set_weighted(const float* from, float weight, float* to, long count) {
  for (long X = 0; X < count; ++X) to[X] = weight * from[X];
}

MONA_CLONES inline void add_weighted(const float* from, float weight, float* to, long count) {
  for (long X = 0; X < count; ++X) to[X] += weight * from[X];
}

MONA_CLONES inline void gather_row(const float* from, float* to, const int* first, const float* weight, long width,
                                   long count) {
  for (long X = 0; X < count; ++X) to[X] = weight[X] * from[first[X]];
  for (long t = 1; t < width; ++t) {
    const float* share = weight + t * count;
    for (long X = 0; X < count; ++X) to[X] += share[X] * from[first[X] + t];
  }
}

// Output row Y before the columns are resampled, or after: `row(i)` gives input row i.  Taps of weight 0 only fill up
// the width, and their rows are not asked for.
template <typename Row>
void combine_rows(const Taps& rows, long Y, Row&& row, float* to, long count) {
  bool begun = false;
  for (long t = 0; t < rows.width; ++t) {
    const float weight = rows.weight[t * rows.count + Y];
    if (weight == 0.0f) continue;
    (begun ? add_weighted : set_weighted)(row(rows.first[Y] + t), weight, to, count);
    begun = true;
  }
  if (!begun) std::fill(to, to + count, 0.0f);
}

// (n, h, w) -> (n, rows.count, cols.count).  Rows first: that loop is contiguous and, where slices shrink, the longer.
inline void resample(const float* in, float* out, long n, long h, long w, Taps rows, Taps cols, int threads) {
  parallel_for(n, threads, [&](long s, int) {
    std::vector<float> between(w);
    for (long Y = 0; Y < rows.count; ++Y) {
      const auto row = [&](long i) { return in + (s * h + i) * w; };
      combine_rows(rows, Y, row, between.data(), w);
      gather_row(between.data(), out + (s * rows.count + Y) * cols.count, cols.first, cols.weight, cols.width,
                 cols.count);
    }
  });
}

// The last few input rows of a plane, resampled to output width.  Neighbouring output rows need mostly the same ones,
// so each is resampled once.
class GatheredRows {
 public:
  GatheredRows(long slots, long count) : rows_(slots * count), holds_(slots, -1), count_(count) {}

  const float* row(const float* plane, long w, const Taps& cols, long i) {
    const long slot = i % static_cast<long>(holds_.size());
    float* kept = rows_.data() + slot * count_;
    if (holds_[slot] != i) {
      gather_row(plane + i * w, kept, cols.first, cols.weight, cols.width, count_);
      holds_[slot] = i;
    }
    return kept;
  }

 private:
  std::vector<float> rows_;
  std::vector<long> holds_;
  long count_;
};

// Where one class is above all others at every input pixel that an output pixel is made of, it also is in the weighted
// sums: weights are not negative, and rounding keeps order.  `label` of an input pixel is that class if it leads by
// more than rounding could take away (a tie would go to the first class), else `unsure`.
template <typename Label>
class SureLabels {
 public:
  static constexpr Label unsure = static_cast<Label>(-1);

  SureLabels(const float* logits, long classes, long h, long w, const Taps& rows, const Taps& cols)
      : labels_(h * w, unsure), w_(w) {
    const long pixels = h * w;
    float largest = 0.0f;
    for (long i = 0; i < classes * pixels; ++i) largest = std::max(largest, std::abs(logits[i]));
    // Two sums of that many products, each off by 2^-24 of the largest value at most; and twice that to be safe.
    const float lead = largest * static_cast<float>(rows.width + cols.width + 2) * 0x1p-22f;
    std::vector<float> best(logits, logits + pixels), second(pixels, -std::numeric_limits<float>::infinity());
    std::vector<Label> first(pixels, Label{0});
    for (long c = 1; c < classes; ++c) {
      const float* value = logits + c * pixels;
      for (long i = 0; i < pixels; ++i) second[i] = std::max(second[i], std::min(best[i], value[i]));
      take_larger(value, static_cast<Label>(c), best.data(), first.data(), pixels);
    }
    for (long i = 0; i < pixels; ++i) labels_[i] = best[i] - second[i] > lead ? first[i] : unsure;  // NaN: unsure
  }

  // The labels of the output rows whose first input row is `row`, as far as they are sure; the columns that are not.
  void of_row(long row, const Taps& rows, const Taps& cols, std::vector<Label>& out, std::vector<int>& open) const {
    std::vector<Label> shared(labels_.begin() + row * w_, labels_.begin() + (row + 1) * w_);
    for (long t = 1; t < rows.width; ++t) {
      const Label* other = labels_.data() + (row + t) * w_;
      for (long x = 0; x < w_; ++x) shared[x] = shared[x] == other[x] ? shared[x] : unsure;
    }
    open.clear();
    for (long X = 0; X < cols.count; ++X) {
      const Label* from = shared.data() + cols.first[X];
      Label label = from[0];
      for (long t = 1; t < cols.width; ++t) label = from[t] == label ? label : unsure;
      out[X] = label;
      if (label == unsure) open.push_back(static_cast<int>(X));
    }
  }

 private:
  std::vector<Label> labels_;
  long w_;
};

// One pixel of the resampled plane, by the same sums in the same order as `gather_row` and `combine_rows`.
inline float resampled_pixel(const float* plane, long w, const Taps& rows, const Taps& cols, long Y, long X) {
  float value = 0.0f;
  bool begun = false;
  for (long t = 0; t < rows.width; ++t) {
    const float weight = rows.weight[t * rows.count + Y];
    if (weight == 0.0f) continue;
    const float* from = plane + (rows.first[Y] + t) * w + cols.first[X];
    float gathered = cols.weight[X] * from[0];
    for (long u = 1; u < cols.width; ++u) gathered += cols.weight[u * cols.count + X] * from[u];
    value = begun ? value + weight * gathered : weight * gathered;
    begun = true;
  }
  return value;
}

// Logits (n, classes, h, w) -> class indices (n, rows.count, cols.count) of the resampled logits, which are held a few
// rows per class and thread at a time.  Only where classes meet are they resampled at all.
template <typename Label>
void argmax_taps(const float* logits, Label* out, long n, long classes, long h, long w, Taps rows, Taps cols,
                 int threads) {
  const long W = cols.count;
  parallel_for(n, threads, [&](long s, int) {
    const float* planes = logits + s * classes * h * w;
    const SureLabels<Label> sure(planes, classes, h, w, rows, cols);
    std::vector<Label> known(W);
    std::vector<int> open;
    std::vector<GatheredRows> kept(classes, GatheredRows(rows.width, W));
    std::vector<float> best(W), value(W);
    for (long Y = 0; Y < rows.count; ++Y) {
      Label* label = out + (s * rows.count + Y) * W;
      if (Y == 0 || rows.first[Y] != rows.first[Y - 1]) sure.of_row(rows.first[Y], rows, cols, known, open);
      if (static_cast<long>(open.size()) < W / 4) {  // else whole rows are faster
        std::copy(known.begin(), known.end(), label);
        for (const int X : open) {
          float most = resampled_pixel(planes, w, rows, cols, Y, X);
          label[X] = 0;
          for (long c = 1; c < classes; ++c) {
            const float other = resampled_pixel(planes + c * h * w, w, rows, cols, Y, X);
            if (other > most) most = other, label[X] = static_cast<Label>(c);
          }
        }
        continue;
      }
      std::fill(label, label + W, Label{0});
      for (long c = 0; c < classes; ++c) {
        const auto row = [&](long i) { return kept[c].row(planes + c * h * w, w, cols, i); };
        combine_rows(rows, Y, row, c ? value.data() : best.data(), W);
        if (c) take_larger(value.data(), static_cast<Label>(c), best.data(), label, W);
      }
    }
  });
}

}  // namespace mona

// Resampling by given taps: every output pixel is a weighted sum of neighbouring input pixels, per axis.
//
// Which pixels and weights is decided in mona_kernels/taps.py (area average or linear); here they are only applied.
#pragma once

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

// Logits (n, classes, h, w) -> class indices (n, rows.count, cols.count) of the resampled logits, which are held a few
// rows per class and thread at a time.
template <typename Label>
void argmax_taps(const float* logits, Label* out, long n, long classes, long h, long w, Taps rows, Taps cols,
                 int threads) {
  const long W = cols.count;
  parallel_for(n, threads, [&](long s, int) {
    std::vector<GatheredRows> kept(classes, GatheredRows(rows.width, W));
    std::vector<float> best(W), value(W);
    for (long Y = 0; Y < rows.count; ++Y) {
      Label* label = out + (s * rows.count + Y) * W;
      std::fill(label, label + W, Label{0});
      for (long c = 0; c < classes; ++c) {
        const float* plane = logits + (s * classes + c) * h * w;
        const auto row = [&](long i) { return kept[c].row(plane, w, cols, i); };
        combine_rows(rows, Y, row, c ? value.data() : best.data(), W);
        if (c) take_larger(value.data(), static_cast<Label>(c), best.data(), label, W);
      }
    }
  });
}

}  // namespace mona

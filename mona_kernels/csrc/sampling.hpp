// The census of a batch and the draws of decision 12: which pixel is number k of its class, without lists.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel.hpp"
#include "philox.hpp"

namespace mona {

// Any array of the batch: where pixel (b, y, x) lies.
template <typename T>
struct Maps {
  const T* data;
  int64_t image, row, column;  // strides
  const T* at(int64_t b, int64_t y) const { return data + b * image + y * row; }
};

struct Census {
  int64_t count, height, width, classes;
  float likely, hard;

  // known B H W; counts and asking (C); keys (C, fill); queries (C, ask).  Draws of the rings take FILL, those of
  // queries QUERY as the stream's low byte.
  void run(Maps<float> chance, int64_t chance_class, Maps<int64_t> labels, Maps<float> sure, int16_t* known,
           int64_t* counts, int64_t* keys, int64_t fill, int64_t* asking, int64_t* queries, int64_t ask,
           Philox draw, int threads) const {
    const int64_t rows = count * height;
    std::vector<int16_t> askers(rows * width);
    // Pixels of class c before each row, for known and askers: a draw finds its row there and then its place in it.
    std::vector<int32_t> before(2 * classes * (rows + 1), 0);
    const auto table = [&](int which, int64_t c) { return before.data() + (which * classes + c) * (rows + 1); };
    parallel_for(rows, threads, [&](long r, int) {
      const int64_t b = r / height, y = r % height;
      const float* p = chance.at(b, y);
      const int64_t* label = labels.at(b, y);
      const float* confidence = sure.at(b, y);
      int16_t* mine = known + r * width;
      int16_t* asks = askers.data() + r * width;
      std::vector<int32_t> found(2 * classes + 2, 0);  // one place more each: where -1 is counted, and not looked at
      for (int64_t x = 0; x < width; ++x) {
        const int64_t c = label[x * labels.column];
        const bool valid = c >= 0 && c < classes && confidence[x * sure.column] >= likely;
        mine[x] = valid ? static_cast<int16_t>(c) : int16_t{-1};
        const bool easy = !valid || !(p[x * chance.column + c * chance_class] < hard);  // NaN is not below
        asks[x] = easy ? int16_t{-1} : mine[x];
        ++found[mine[x] + 1];
        ++found[classes + 1 + asks[x] + 1];
      }
      for (int64_t c = 0; c < classes; ++c) {
        table(0, c)[r + 1] = found[c + 1];
        table(1, c)[r + 1] = found[classes + 1 + c + 1];
      }
    });
    for (int64_t t = 0; t < 2 * classes; ++t) {
      int32_t* row = before.data() + t * (rows + 1);
      for (int64_t r = 0; r < rows; ++r) row[r + 1] += row[r];
    }
    parallel_for(2 * classes, threads, [&](long t, int) {
      const int which = t >= classes;
      const int64_t c = t % classes, draws = which ? ask : fill;
      const int32_t* row = table(which, c);
      const int16_t* map = which ? askers.data() : known;
      int64_t* out = (which ? queries : keys) + c * draws;
      const int64_t n = row[rows];
      (which ? asking : counts)[c] = n;
      Philox mine = draw;
      mine.stream |= static_cast<uint32_t>(which);
      const int64_t some = n == 0 ? 0 : which ? draws : std::min(draws, n);  // no more keys than pixels
      for (int64_t i = 0; i < some; ++i) {
        const int64_t chosen = below(mine(static_cast<uint32_t>(i), static_cast<uint32_t>(c))[0], n);
        const int64_t r = std::upper_bound(row, row + rows + 1, static_cast<int32_t>(chosen)) - row - 1;
        const int16_t* pixel = map + r * width;
        for (int64_t left = chosen - row[r];; ++pixel)
          if (*pixel == c && left-- == 0) break;
        out[i] = pixel - map;
      }
      std::fill(out + some, out + draws, int64_t{-1});
    });
  }
};

// Flat ring slots (C, draws): word 0 picks the ring by the cumulative limits (C, V), word 1 the slot.
inline void draw_keys(const int64_t* limits, const int64_t* filled, int64_t classes, int64_t rings, int64_t ring,
                      int64_t* out, int64_t draws, Philox draw, int threads) {
  constexpr int64_t block = 4096;  // with fewer, no extra thread is used
  const int64_t blocks = (draws + block - 1) / block;
  parallel_for(classes * blocks, blocks > 1 ? threads : 1, [&](long task, int) {
    const int64_t c = task / blocks, first = task % blocks * block, last = std::min(draws, first + block);
    const int64_t* limit = limits + c * rings;
    for (int64_t i = first; i < last; ++i) {
      const auto words = draw(static_cast<uint32_t>(i), static_cast<uint32_t>(c));
      const int64_t v = std::upper_bound(limit, limit + rings, static_cast<int64_t>(words[0])) - limit;
      out[c * draws + i] = v == rings ? -1 : v * ring + below(words[1], filled[v]);
    }
  });
}

}  // namespace mona

// One pass over two label maps: voxel counts and joint bounding boxes of every class.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "clones.hpp"
#include "parallel.hpp"

namespace mona {

struct ClassOverlap {
  int64_t in_a = 0, in_b = 0, in_both = 0;
  int32_t low[3] = {INT32_MAX, INT32_MAX, INT32_MAX};  // joint box, inclusive
  int32_t high[3] = {-1, -1, -1};

  void extend(int32_t z, int32_t y, int32_t x0, int32_t x1) {
    const int32_t from[3] = {z, y, x0}, to[3] = {z, y, x1};
    for (int d = 0; d < 3; ++d) {
      low[d] = std::min(low[d], from[d]);
      high[d] = std::max(high[d], to[d]);
    }
  }
  void merge(const ClassOverlap& other) {
    in_a += other.in_a;
    in_b += other.in_b;
    in_both += other.in_both;
    for (int d = 0; d < 3; ++d) {
      low[d] = std::min(low[d], other.low[d]);
      high[d] = std::max(high[d], other.high[d]);
    }
  }
};

MONA_CLONES inline bool all_zero(const uint8_t* a, const uint8_t* b, long bytes) {
  uint8_t any = 0;
  for (long i = 0; i < bytes; ++i) any |= static_cast<uint8_t>(a[i] | b[i]);
  return any == 0;
}

// Background (0) is not counted: rows without any label, most of a scan, cost one look.
template <typename Label>
std::vector<ClassOverlap> overlap(const Label* a, const Label* b, const long shape[3], int threads) {
  const long classes = static_cast<long>(Label(-1)) + 1, nz = shape[0], ny = shape[1], nx = shape[2];
  threads = static_cast<int>(std::min<long>(std::max(threads, 1), nz));
  std::vector<std::vector<ClassOverlap>> tables(threads, std::vector<ClassOverlap>(classes));
  parallel_for(nz, threads, [&](long z, int worker) {
    auto& table = tables[worker];
    for (long y = 0; y < ny; ++y) {
      const Label* p = a + (z * ny + y) * nx;
      const Label* q = b + (z * ny + y) * nx;
      if (all_zero(reinterpret_cast<const uint8_t*>(p), reinterpret_cast<const uint8_t*>(q),
                   nx * static_cast<long>(sizeof(Label))))
        continue;
      for (long x = 0; x < nx;) {  // runs of one (p, q) pair
        const Label in_p = p[x], in_q = q[x];
        const long start = x;
        while (x < nx && p[x] == in_p && q[x] == in_q) ++x;
        const auto extend = [&](Label id) {
          table[id].extend(static_cast<int32_t>(z), static_cast<int32_t>(y), static_cast<int32_t>(start),
                           static_cast<int32_t>(x - 1));
        };
        if (in_p) table[in_p].in_a += x - start, extend(in_p);
        if (in_q) table[in_q].in_b += x - start, extend(in_q);
        if (in_p && in_p == in_q) table[in_p].in_both += x - start;
      }
    }
  });
  for (int t = 1; t < threads; ++t)
    for (long c = 1; c < classes; ++c) tables[0][c].merge(tables[t][c]);
  return tables[0];
}

}  // namespace mona

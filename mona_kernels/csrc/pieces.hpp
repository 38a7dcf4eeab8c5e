// The largest connected piece of each class on a label map; neighbours share an edge.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "parallel.hpp"

namespace mona {

// `kept` is `labels` with all other pieces set to 0.  Of pieces of the same size, the one that comes first stays.
inline void largest_pieces(const int64_t* labels, int64_t* kept, int64_t height, int64_t width) {
  const int64_t pixels = height * width;
  // A pixel's parent is a pixel of the same piece that comes earlier, so a root is the first pixel of its piece.
  std::vector<int32_t> parent(pixels), size(pixels, 0);
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t at) {
    while (parent[at] != at) at = parent[at] = parent[parent[at]];
    return at;
  };
  const auto join = [&](int32_t a, int32_t b) {
    a = root(a), b = root(b);
    parent[std::max(a, b)] = std::min(a, b);
  };
  int64_t classes = 0;
  for (int64_t y = 0, at = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x, ++at) {
      if (labels[at] <= 0) continue;
      classes = std::max(classes, labels[at]);
      if (x && labels[at - 1] == labels[at]) join(at - 1, at);
      if (y && labels[at - width] == labels[at]) join(at - width, at);
    }
  for (int64_t at = 0; at < pixels; ++at)
    if (labels[at] > 0) ++size[parent[at] = root(at)];
  std::vector<int32_t> best(classes + 1, -1);
  for (int64_t at = 0; at < pixels; ++at) {
    if (!size[at]) continue;  // not a root
    auto& first = best[labels[at]];
    if (first < 0 || size[at] > size[first]) first = at;
  }
  for (int64_t at = 0; at < pixels; ++at)
    kept[at] = labels[at] <= 0 || parent[at] == best[labels[at]] ? labels[at] : 0;
}

}  // namespace mona

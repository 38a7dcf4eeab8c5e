// Post-processing and counting of label maps that are stored in any order, in place and without a copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel.hpp"

namespace mona {

// Axes 0, 1, 2 of a map as its caller sees it, walked here as it lies in memory: the slowest axis first.
struct WalkedAxis {
  long size, step;  // step: labels from one voxel to the next in memory, positive
  long rank;        // places from one voxel to the next in the caller's order, negative along a flipped axis
  int of;           // the caller's axis
};

template <typename Label>
struct LabelMap {
  Label* origin;    // the voxel with the lowest address
  long first_rank;  // its place in the caller's order
  WalkedAxis axes[3];

  LabelMap(Label* data, const long size[3], const long step[3]) : origin(data), first_rank(0) {
    for (int d = 0; d < 3; ++d) {
      auto& axis = axes[d];
      axis = {size[d], step[d], 1, d};
      for (int inner = d + 1; inner < 3; ++inner) axis.rank *= size[inner];
      if (axis.step >= 0) continue;
      origin += (axis.size - 1) * axis.step;
      first_rank += (axis.size - 1) * axis.rank;
      axis.step = -axis.step, axis.rank = -axis.rank;
    }
    std::sort(axes, axes + 3, [](const WalkedAxis& a, const WalkedAxis& b) {  // the step of a single voxel says nothing
      return std::make_pair(a.size > 1, -a.step) < std::make_pair(b.size > 1, -b.step);
    });
  }
  long lines() const { return axes[0].size * axes[1].size; }
  Label* line(long number) const {
    return origin + number / axes[1].size * axes[0].step + number % axes[1].size * axes[1].step;
  }
};

// Calls found(label, first, end) for each run of one label other than 0.  Most of a scan is background.
template <typename Label, typename Found>
void runs_of_line(const Label* line, long count, long step, Found&& found) {
  constexpr long at_once = sizeof(uint64_t) / sizeof(Label);
  for (long x = 0; x < count;) {
    const Label label = line[x * step];
    const long first = x;
    if (label) {
      while (x < count && line[x * step] == label) ++x;
      found(label, first, x);
      continue;
    }
    for (uint64_t some = 0; step == 1 && x + at_once <= count; x += at_once) {
      std::memcpy(&some, line + x, sizeof some);
      if (some) break;
    }
    while (x < count && !line[x * step]) ++x;
  }
}

template <typename Label>
struct Run {
  long line;
  int32_t first, end;
  Label label;
};

template <typename Label>
std::vector<Run<Label>> runs_of(const LabelMap<Label>& map, int threads) {
  std::vector<std::vector<Run<Label>>> slabs(map.axes[0].size);
  parallel_for(map.axes[0].size, threads, [&](long slab, int) {
    for (long n = slab * map.axes[1].size; n < (slab + 1) * map.axes[1].size; ++n)
      runs_of_line(map.line(n), map.axes[2].size, map.axes[2].step, [&](Label label, long first, long end) {
        slabs[slab].push_back({n, static_cast<int32_t>(first), static_cast<int32_t>(end), label});
      });
  });
  size_t total = 0;
  for (const auto& slab : slabs) total += slab.size();
  std::vector<Run<Label>> runs;
  runs.reserve(total);
  for (const auto& slab : slabs) runs.insert(runs.end(), slab.begin(), slab.end());
  return runs;
}

// Sets all but the largest piece of each class for which chosen(label) to 0; neighbours share a face.  Of pieces of the
// same size, the one that comes first in the caller's order stays.
template <typename Label, typename Chosen>
void keep_largest(const LabelMap<Label>& map, Chosen&& chosen, int threads) {
  const auto runs = runs_of(map, threads);
  const long count = static_cast<long>(runs.size()), height = map.axes[1].size;
  std::vector<long> begin(map.lines() + 1, count);  // the first run of each line
  for (long n = count; n-- > 0;) begin[runs[n].line] = n;
  for (long n = map.lines(); n-- > 0;) begin[n] = std::min(begin[n], begin[n + 1]);

  std::vector<long> parent(count);
  std::iota(parent.begin(), parent.end(), 0L);
  const auto root = [&](long at) {
    while (parent[at] != at) at = parent[at] = parent[parent[at]];
    return at;
  };
  const auto join_lines = [&](long above, long below) {
    for (long a = begin[above], b = begin[below]; a < begin[above + 1] && b < begin[below + 1];) {
      const bool touch = runs[a].first < runs[b].end && runs[b].first < runs[a].end;
      if (touch && runs[a].label == runs[b].label) {
        const long one = root(a), other = root(b);
        parent[std::max(one, other)] = std::min(one, other);
      }
      runs[a].end < runs[b].end ? ++a : ++b;
    }
  };
  for (long n = 0; n < map.lines(); ++n) {
    if (begin[n] == begin[n + 1]) continue;
    if (n % height) join_lines(n - 1, n);
    if (n >= height) join_lines(n - height, n);
  }

  struct Piece {
    long voxels = 0, rank = 0;
  };
  std::vector<Piece> pieces(count);
  const auto& [slab, line, along] = map.axes;
  for (long n = 0; n < count; ++n) {
    const auto& run = runs[n];
    auto& piece = pieces[parent[n] = root(n)];
    const long start = run.line / height * slab.rank + run.line % height * line.rank;
    const long rank = start + (along.rank > 0 ? run.first : run.end - 1) * along.rank;
    piece.rank = piece.voxels ? std::min(piece.rank, rank) : rank;
    piece.voxels += run.end - run.first;
  }
  std::vector<long> best(static_cast<size_t>(Label(-1)) + 1, -1);
  for (long n = 0; n < count; ++n) {
    if (parent[n] != n) continue;
    auto& kept = best[runs[n].label];
    if (kept < 0 || pieces[n].voxels > pieces[kept].voxels ||
        (pieces[n].voxels == pieces[kept].voxels && pieces[n].rank < pieces[kept].rank))
      kept = n;
  }
  for (long n = 0; n < count; ++n) {
    const auto& run = runs[n];
    if (parent[n] == best[run.label] || !chosen(run.label)) continue;
    Label* at = map.line(run.line);
    for (long x = run.first; x < run.end; ++x) at[x * along.step] = 0;
  }
}

// Gives background that `label` encloses in its slice (the caller's axis 0) to it: background that cannot reach the
// slice's border through sides of pixels without crossing the label.  Other labels in a hole stay as they are.
template <typename Label>
void fill_holes(Label* data, const long size[3], const long step[3], Label label, int threads) {
  // The order of lines within a slice does not matter, so they go along the axis that is contiguous, if one is.
  const int line = std::abs(step[1]) < std::abs(step[2]) ? 2 : 1, along = 3 - line;
  parallel_for(size[0], threads, [&](long slice, int) {
    Label* plane = data + slice * step[0];
    long top = size[line], bottom = -1, left = size[along], right = -1;
    for (long y = 0; y < size[line]; ++y)
      runs_of_line(plane + y * step[line], size[along], step[along], [&](Label found, long first, long end) {
        if (found != label) return;
        top = std::min(top, y), bottom = y;
        left = std::min(left, first), right = std::max(right, end - 1);
      });
    if (bottom < 0) return;
    // A margin of one pixel joins all that reaches the border of the label's box.
    const long height = bottom - top + 3, width = right - left + 3;
    enum : uint8_t { unknown, wall, outside };
    std::vector<uint8_t> state(height * width, unknown);
    const auto at = [&](long y, long x) { return plane + (top + y - 1) * step[line] + (left + x - 1) * step[along]; };
    for (long y = 1; y < height - 1; ++y)
      for (long x = 1; x < width - 1; ++x)
        if (*at(y, x) == label) state[y * width + x] = wall;
    std::vector<long> open{0};
    state[0] = outside;
    const auto reach = [&](long place) {
      if (state[place] != unknown) return;
      state[place] = outside;
      open.push_back(place);
    };
    while (!open.empty()) {
      const long place = open.back(), x = place % width;
      open.pop_back();
      if (x > 0) reach(place - 1);
      if (x < width - 1) reach(place + 1);
      if (place >= width) reach(place - width);
      if (place < (height - 1) * width) reach(place + width);
    }
    for (long y = 1; y < height - 1; ++y)
      for (long x = 1; x < width - 1; ++x)
        if (state[y * width + x] == unknown && *at(y, x) == 0) *at(y, x) = label;
  });
}

// counts[slice * classes + place[label]]: voxels of each label other than 0 in the slices of the caller's axis 0;
// labels whose place is negative are not counted.
template <typename Label>
void slice_counts(const LabelMap<Label>& map, const std::vector<int>& place, long classes, int64_t* counts,
                  int threads) {
  const bool backwards[3] = {map.axes[0].rank < 0, map.axes[1].rank < 0, map.axes[2].rank < 0};
  for (const auto& run : runs_of(map, threads)) {
    if (place[run.label] < 0) continue;
    const long at[2] = {run.line / map.axes[1].size, run.line % map.axes[1].size};
    for (int d = 0; d < 3; ++d) {
      if (map.axes[d].of != 0) continue;
      const auto slice = [&](long n) { return backwards[d] ? map.axes[d].size - 1 - n : n; };
      if (d < 2) counts[slice(at[d]) * classes + place[run.label]] += run.end - run.first;
      for (long n = run.first; d == 2 && n < run.end; ++n) ++counts[slice(n) * classes + place[run.label]];
    }
  }
}

}  // namespace mona

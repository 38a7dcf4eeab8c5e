// The nearest of a set of points in space, exactly: a k-d tree over their coordinates.
//
// For grids whose axes are not at right angles (a tilted gantry), where the squared distance is not a sum over axes and
// the sweeps of surface.hpp do not apply.  A branch is left out only where its bounding box is at least as far away as the
// best point so far.  Rounding is monotone, so this gives the very minimum over all points' computed distances: neither
// the tree's shape nor the number of threads can be seen in a result.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace mona {

using Point = std::array<double, 3>;

inline double squared_distance(const Point& a, const Point& b) {
  const double x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return x * x + y * y + z * z;
}

class PointTree {
 public:
  explicit PointTree(std::vector<Point> points) : points_(std::move(points)) { build(0, 0, size()); }

  // The squared distance to the nearest point.  `hint` is the index of one that is likely to be near (its neighbour's
  // nearest), which saves most of the search, and becomes that of the nearest.
  double nearest(const Point& from, long& hint) const {
    Search search{from, hint, squared_distance(from, points_[hint])};
    if (boxes_[0].squared_distance(from) < search.best) visit(0, 0, size(), search);
    hint = search.at;
    return search.best;
  }

 private:
  static constexpr long kLeaf = 12;
  struct Bounds {
    Point low, high;
    double squared_distance(const Point& from) const {
      double sum = 0;
      for (int d = 0; d < 3; ++d) {
        const double outside = std::max({low[d] - from[d], from[d] - high[d], 0.0});
        sum += outside * outside;
      }
      return sum;
    }
  };
  struct Search {
    const Point& from;
    long at;
    double best;
  };

  long size() const { return static_cast<long>(points_.size()); }

  // Points [low, high) are those of a node; they are halved along the longest side of their box.
  void build(size_t node, long low, long high) {
    if (boxes_.size() <= node) boxes_.resize(node + 1);
    Bounds box{points_[low], points_[low]};
    for (long n = low + 1; n < high; ++n)
      for (int d = 0; d < 3; ++d) {
        box.low[d] = std::min(box.low[d], points_[n][d]);
        box.high[d] = std::max(box.high[d], points_[n][d]);
      }
    boxes_[node] = box;
    if (high - low <= kLeaf) return;
    int axis = 0;
    for (int d = 1; d < 3; ++d)
      if (box.high[d] - box.low[d] > box.high[axis] - box.low[axis]) axis = d;
    const long middle = low + (high - low) / 2;
    std::nth_element(points_.begin() + low, points_.begin() + middle, points_.begin() + high,
                     [axis](const Point& a, const Point& b) { return a[axis] < b[axis]; });
    build(2 * node + 1, low, middle);
    build(2 * node + 2, middle, high);
  }

  void visit(size_t node, long low, long high, Search& search) const {
    if (high - low <= kLeaf) {
      for (long n = low; n < high; ++n) {
        const double found = squared_distance(search.from, points_[n]);
        if (found < search.best) {
          search.best = found;
          search.at = n;
        }
      }
      return;
    }
    const long middle = low + (high - low) / 2;
    const double left = boxes_[2 * node + 1].squared_distance(search.from);
    const double right = boxes_[2 * node + 2].squared_distance(search.from);
    if (left <= right) {
      if (left < search.best) visit(2 * node + 1, low, middle, search);
      if (right < search.best) visit(2 * node + 2, middle, high, search);
    } else {
      if (right < search.best) visit(2 * node + 2, middle, high, search);
      if (left < search.best) visit(2 * node + 1, low, middle, search);
    }
  }

  std::vector<Point> points_;
  std::vector<Bounds> boxes_;  // of node n's children: 2 n + 1 and 2 n + 2
};

}  // namespace mona

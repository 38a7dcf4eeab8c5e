// Exact distances between the borders of two masks of one class, in millimetres.
//
// A border voxel has a face neighbour outside the mask (6-connectivity; beyond the grid is outside).  Distances
// go from each border voxel of one mask to the nearest border voxel of the other, centre to centre: medpy's
// definition.  The squared Euclidean distance is separable, so it is taken axis by axis: along x by two sweeps,
// along y by the lower envelope of parabolas (Felzenszwalb and Huttenlocher 2012), and along z only where it is
// asked for, at the other mask's border, by an outward search that stops as soon as it cannot improve.
// Only the integer offsets of the nearest voxel are stored (4 bytes), so nothing is rounded on the way.
// A grid whose axes are not at right angles has no such separation: there the border voxels' own places are searched.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "clones.hpp"
#include "nearest.hpp"
#include "parallel.hpp"

namespace mona {

struct Box {
  long low[3], size[3];  // z y x
  long voxels() const { return size[0] * size[1] * size[2]; }
};

constexpr uint16_t kFar = 0xFFFF;  // no border voxel in this row

// 1 where `row` has the class, else 0, for a row of the box; outside the box nothing has it.
template <typename Label>
MONA_CLONES void class_row(const Label* row, Label id, uint8_t* mask, long nx) {
  for (long x = 0; x < nx; ++x) mask[x] = row[x] == id;
}

MONA_CLONES inline void border_row(const uint8_t* mask, const uint8_t* up, const uint8_t* down,
                                   const uint8_t* before, const uint8_t* behind, uint8_t* border, long nx) {
  for (long x = 0; x < nx; ++x)  // mask rows carry one zero on either side
    border[x] = mask[x] & ~(mask[x - 1] & mask[x + 1] & up[x] & down[x] & before[x] & behind[x]);
}

// The border of one class inside the box (z y x, one byte a voxel) and its size in every slice.
struct Border {
  std::vector<uint8_t> flags;
  std::vector<long> per_slice;
  long total = 0;
};

template <typename Label>
Border find_border(const Label* labels, const long shape[3], const Box& box, Label id, int threads) {
  const long nz = box.size[0], ny = box.size[1], nx = box.size[2];
  Border border{std::vector<uint8_t>(box.voxels()), std::vector<long>(nz, 0)};
  parallel_for(nz, threads, [&](long z, int) {
    // Three slices of 0/1 rows with a rim of zeros, so that no neighbour needs a bounds check.
    const long pitch = nx + 2;
    std::vector<uint8_t> slab(3 * (ny + 2) * pitch, 0);
    const auto row = [&](long dz, long y) { return slab.data() + ((dz + 1) * (ny + 2) + y + 1) * pitch + 1; };
    for (long dz = -1; dz <= 1; ++dz) {
      if (z + dz < 0 || z + dz >= nz) continue;
      for (long y = 0; y < ny; ++y) {
        const long at = ((box.low[0] + z + dz) * shape[1] + box.low[1] + y) * shape[2] + box.low[2];
        class_row(labels + at, id, row(dz, y), nx);
      }
    }
    long count = 0;
    for (long y = 0; y < ny; ++y) {
      uint8_t* to = border.flags.data() + (z * ny + y) * nx;
      border_row(row(0, y), row(0, y - 1), row(0, y + 1), row(-1, y), row(1, y), to, nx);
      for (long x = 0; x < nx; ++x) count += to[x];
    }
    border.per_slice[z] = count;
  });
  for (long count : border.per_slice) border.total += count;
  return border;
}

struct Offset {
  uint16_t y, x;  // voxels to the nearest border voxel of the slice; x == kFar: the slice has none
};

class DistanceField {
 public:
  DistanceField(const Box& box, const double spacing[3])
      : nz_(box.size[0]), ny_(box.size[1]), nx_(box.size[2]), offsets_(box.voxels()), occupied_(nz_) {
    for (int d = 0; d < 3; ++d) {
      if (box.size[d] >= kFar) throw std::invalid_argument("a mask is more than 65,534 voxels long");
      squares_[d].resize(box.size[d]);
      for (long k = 0; k < box.size[d]; ++k) squares_[d][k] = (k * spacing[d]) * (k * spacing[d]);
    }
  }

  void build(const Border& border, int threads) {
    parallel_for(nz_, threads, [&](long z, int) {
      occupied_[z] = border.per_slice[z] > 0;
      if (occupied_[z]) build_slice(border.flags.data() + z * ny_ * nx_, offsets_.data() + z * ny_ * nx_);
    });
  }

  // Distance from voxel (z, y, x) to the nearest border voxel of the whole box.
  double at(long z, long y, long x) const {
    double best = std::numeric_limits<double>::infinity();
    const long column = y * nx_ + x, farthest = std::max(z, nz_ - 1 - z);
    for (long dz = 0; dz <= farthest && squares_[0][dz] < best; ++dz) {
      if (z >= dz) best = std::min(best, squares_[0][dz] + in_slice(z - dz, column));
      if (z + dz < nz_) best = std::min(best, squares_[0][dz] + in_slice(z + dz, column));
    }
    return std::sqrt(best);
  }

 private:
  double in_slice(long z, long column) const {
    if (!occupied_[z]) return std::numeric_limits<double>::infinity();
    const Offset offset = offsets_[z * ny_ * nx_ + column];
    return squares_[1][offset.y] + squares_[2][offset.x];
  }

  void build_slice(const uint8_t* border, Offset* out) const {
    std::vector<uint16_t> along_x(ny_ * nx_);
    std::vector<long> rows;  // those with a border voxel
    for (long y = 0; y < ny_; ++y)
      if (sweep_row(border + y * nx_, along_x.data() + rows.size() * nx_)) rows.push_back(y);

    // Parabolas with apex (row, squared x distance); `start[k]` is where the k-th begins to be the lowest.
    const long sites = static_cast<long>(rows.size());
    const double step = squares_[1].size() > 1 ? squares_[1][1] : 1.0;  // spacing squared
    std::vector<long> hull(sites);
    std::vector<double> start(sites + 1), height(sites);
    for (long x = 0; x < nx_; ++x) {
      long top = -1;
      for (long k = 0; k < sites; ++k) {
        const double row = static_cast<double>(rows[k]);
        const double apex = squares_[2][along_x[k * nx_ + x]] / step + row * row;
        double from = -std::numeric_limits<double>::infinity();
        while (top >= 0) {
          from = (apex - height[top]) / (2.0 * (row - static_cast<double>(rows[hull[top]])));
          if (from > start[top]) break;
          --top;
          from = -std::numeric_limits<double>::infinity();
        }
        ++top;
        hull[top] = k;
        height[top] = apex;
        start[top] = from;
      }
      start[top + 1] = std::numeric_limits<double>::infinity();
      long lowest = 0;
      for (long y = 0; y < ny_; ++y) {
        while (start[lowest + 1] < static_cast<double>(y)) ++lowest;
        const long k = hull[lowest];
        out[y * nx_ + x] = {static_cast<uint16_t>(std::labs(y - rows[k])), along_x[k * nx_ + x]};
      }
    }
  }

  // Voxels to the nearest border voxel of the row; false if the row has none.
  bool sweep_row(const uint8_t* border, uint16_t* to) const {
    long last = -1;
    for (long x = 0; x < nx_; ++x) {
      if (border[x]) last = x;
      to[x] = last < 0 ? kFar : static_cast<uint16_t>(x - last);
    }
    if (last < 0) return false;
    for (long x = last - 1; x >= 0; --x)
      to[x] = border[x] ? 0 : std::min<uint16_t>(to[x], static_cast<uint16_t>(to[x + 1] + 1));
    return true;
  }

  long nz_, ny_, nx_;
  std::vector<Offset> offsets_;
  std::vector<uint8_t> occupied_;
  std::vector<double> squares_[3];  // squared millimetres of a whole number of voxels, per axis
};

inline std::vector<double> distances(const Border& from, const DistanceField& to, const Box& box, int threads) {
  const long nz = box.size[0], ny = box.size[1], nx = box.size[2];
  std::vector<long> first(nz + 1, 0);
  for (long z = 0; z < nz; ++z) first[z + 1] = first[z] + from.per_slice[z];
  std::vector<double> result(from.total);
  parallel_for(nz, threads, [&](long z, int) {
    double* next = result.data() + first[z];
    const uint8_t* flags = from.flags.data() + z * ny * nx;
    for (long y = 0; y < ny; ++y)
      for (long x = 0; x < nx; ++x)
        if (flags[y * nx + x]) *next++ = to.at(z, y, x);
  });
  return result;
}

struct SurfaceDistances {
  std::vector<double> a_to_b, b_to_a;
};

template <typename Label>
SurfaceDistances surface_distances(const Label* a, const Label* b, const long shape[3], const Box& box, Label id,
                                   const double spacing[3], int threads) {
  if (box.voxels() < 100000) threads = 1;  // starting a thread costs as much as the work
  const Border of_a = find_border(a, shape, box, id, threads), of_b = find_border(b, shape, box, id, threads);
  if (of_a.total == 0 || of_b.total == 0) throw std::invalid_argument("surface distances need two masks");
  SurfaceDistances result;
  DistanceField field(box, spacing);  // one buffer serves both directions
  field.build(of_b, threads);
  result.a_to_b = distances(of_a, field, box, threads);
  field.build(of_a, threads);
  result.b_to_a = distances(of_b, field, box, threads);
  return result;
}

// Where the border voxels lie, in millimetres from the box's first voxel; steps[d] leads from a voxel to the next
// along axis d.  In the order of the array, like the distances above.
inline std::vector<Point> places(const Border& border, const Box& box, const Point steps[3]) {
  std::vector<Point> result;
  result.reserve(border.total);
  const uint8_t* flag = border.flags.data();
  for (long z = 0; z < box.size[0]; ++z)
    for (long y = 0; y < box.size[1]; ++y)
      for (long x = 0; x < box.size[2]; ++x)
        if (*flag++) {
          Point at;
          for (int d = 0; d < 3; ++d) at[d] = z * steps[0][d] + y * steps[1][d] + x * steps[2][d];
          result.push_back(at);
        }
  return result;
}

inline std::vector<double> distances(const std::vector<Point>& from, const PointTree& to, int threads) {
  constexpr long kPart = 1024;  // neighbours in the array are neighbours in space, so the hint is good
  const long count = static_cast<long>(from.size());
  std::vector<double> result(count);
  parallel_for((count + kPart - 1) / kPart, threads, [&](long part, int) {
    long hint = 0;
    for (long n = part * kPart; n < std::min(count, (part + 1) * kPart); ++n)
      result[n] = std::sqrt(to.nearest(from[n], hint));
  });
  return result;
}

template <typename Label>
SurfaceDistances sheared_distances(const Label* a, const Label* b, const long shape[3], const Box& box, Label id,
                                   const Point steps[3], int threads) {
  if (box.voxels() < 100000) threads = 1;
  const Border of_a = find_border(a, shape, box, id, threads), of_b = find_border(b, shape, box, id, threads);
  if (of_a.total == 0 || of_b.total == 0) throw std::invalid_argument("surface distances need two masks");
  const std::vector<Point> in_a = places(of_a, box, steps), in_b = places(of_b, box, steps);
  return {distances(in_a, PointTree(in_b), threads), distances(in_b, PointTree(in_a), threads)};
}

}  // namespace mona

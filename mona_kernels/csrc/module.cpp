// The compiled face of mona_kernels.native: plain NumPy buffers in, plain NumPy buffers out.
// Shapes are checked in native.py, which is the only caller; the GIL is released while a loop runs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "label_maps.hpp"
#include "overlap.hpp"
#include "resample.hpp"
#include "surface.hpp"
#include "taps.hpp"

namespace nb = nanobind;

namespace {

template <typename T, int rank>
using In = nb::ndarray<const T, nb::ndim<rank>, nb::c_contig, nb::device::cpu>;
template <typename T, int rank>
using Out = nb::ndarray<T, nb::ndim<rank>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<nb::numpy, double, nb::ndim<1>>;

template <typename T>
void nearest(In<T, 3> in, Out<T, 3> out, int threads) {
  nb::gil_scoped_release unlocked;
  mona::resize_nearest(in.data(), out.data(), in.shape(0), in.shape(1), in.shape(2), out.shape(1), out.shape(2),
                       threads);
}

void linear(In<float, 3> in, Out<float, 3> out, int threads) {
  nb::gil_scoped_release unlocked;
  mona::resize_linear(in.data(), out.data(), in.shape(0), in.shape(1), in.shape(2), out.shape(1), out.shape(2),
                      threads);
}

template <typename Label>
void argmax(In<float, 4> logits, Out<Label, 3> out, int order, int threads) {
  nb::gil_scoped_release unlocked;
  const auto run = order == 0 ? mona::argmax_nearest<Label> : mona::argmax_linear<Label>;
  run(logits.data(), out.data(), logits.shape(0), logits.shape(1), logits.shape(2), logits.shape(3), out.shape(1),
      out.shape(2), threads);
}

mona::Taps taps_of(const In<int, 1>& first, const In<float, 2>& weight) {
  return {first.data(), weight.data(), (long)weight.shape(0), (long)weight.shape(1)};
}

void resample(In<float, 3> in, Out<float, 3> out, In<int, 1> row_first, In<float, 2> row_weight, In<int, 1> col_first,
              In<float, 2> col_weight, int threads) {
  nb::gil_scoped_release unlocked;
  mona::resample(in.data(), out.data(), in.shape(0), in.shape(1), in.shape(2), taps_of(row_first, row_weight),
                 taps_of(col_first, col_weight), threads);
}

template <typename Label>
void argmax_taps(In<float, 4> logits, Out<Label, 3> out, In<int, 1> row_first, In<float, 2> row_weight,
                 In<int, 1> col_first, In<float, 2> col_weight, int threads) {
  nb::gil_scoped_release unlocked;
  mona::argmax_taps(logits.data(), out.data(), logits.shape(0), logits.shape(1), logits.shape(2), logits.shape(3),
                    taps_of(row_first, row_weight), taps_of(col_first, col_weight), threads);
}

// Rows of (id, voxels in a, in b, in both, box low z y x, box high z y x), one for every class that occurs.
template <typename Label>
std::vector<std::array<int64_t, 10>> overlap(In<Label, 3> a, In<Label, 3> b, int threads) {
  const long shape[3] = {(long)a.shape(0), (long)a.shape(1), (long)a.shape(2)};
  std::vector<std::array<int64_t, 10>> rows;
  nb::gil_scoped_release unlocked;
  const auto table = mona::overlap(a.data(), b.data(), shape, threads);
  for (size_t id = 1; id < table.size(); ++id) {
    const auto& c = table[id];
    if (c.high[0] >= 0)
      rows.push_back({(int64_t)id, c.in_a, c.in_b, c.in_both, c.low[0], c.low[1], c.low[2], c.high[0], c.high[1],
                      c.high[2]});
  }
  return rows;
}

// A label map in whichever order it is stored: nothing is copied, so writing reaches the mask itself.
template <typename Label>
using Stored = nb::ndarray<Label, nb::ndim<3>, nb::device::cpu>;

struct Geometry {
  long size[3], step[3];

  template <typename Array>
  explicit Geometry(const Array& map) {
    for (int d = 0; d < 3; ++d) size[d] = (long)map.shape(d), step[d] = (long)map.stride(d);
  }
};

// Without `only`, of every class.
template <typename Label>
void keep_largest(Stored<Label> map, std::optional<std::vector<int64_t>> only, int threads) {
  const Geometry stored(map);
  nb::gil_scoped_release unlocked;
  const mona::LabelMap<Label> labels(map.data(), stored.size, stored.step);
  std::vector<bool> chosen(static_cast<size_t>(Label(-1)) + 1, !only);
  for (const int64_t id : only.value_or(std::vector<int64_t>{})) chosen.at(id) = true;
  mona::keep_largest(labels, [&](Label label) { return chosen[label]; }, threads);
}

template <typename Label>
void fill_holes(Stored<Label> map, int64_t id, int threads) {
  const Geometry stored(map);
  nb::gil_scoped_release unlocked;
  mona::fill_holes(map.data(), stored.size, stored.step, static_cast<Label>(id), threads);
}

template <typename Label>
void slice_counts(Stored<const Label> map, std::vector<int64_t> ids, Out<int64_t, 2> counts, int threads) {
  const Geometry stored(map);
  nb::gil_scoped_release unlocked;
  const mona::LabelMap<Label> labels(const_cast<Label*>(map.data()), stored.size, stored.step);  // only read
  std::vector<int> place(static_cast<size_t>(Label(-1)) + 1, -1);
  for (size_t n = 0; n < ids.size(); ++n) place.at(ids[n]) = static_cast<int>(n);
  mona::slice_counts(labels, place, static_cast<long>(ids.size()), counts.data(), threads);
}

Vector hand_over(std::vector<double>&& values) {
  auto* kept = new std::vector<double>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
  return Vector(kept->data(), {kept->size()}, owner);
}

mona::Box crop_of(const std::array<int64_t, 6>& box) {
  mona::Box crop;
  for (int d = 0; d < 3; ++d) {
    crop.low[d] = box[d];
    crop.size[d] = box[d + 3] - box[d] + 1;
  }
  return crop;
}

template <typename Label>
nb::tuple surface(In<Label, 3> a, In<Label, 3> b, int64_t id, std::array<int64_t, 6> box,
                  std::array<double, 3> spacing, int threads) {
  const long shape[3] = {(long)a.shape(0), (long)a.shape(1), (long)a.shape(2)};
  mona::SurfaceDistances result;
  {
    nb::gil_scoped_release unlocked;
    result = mona::surface_distances(a.data(), b.data(), shape, crop_of(box), static_cast<Label>(id), spacing.data(),
                                     threads);
  }
  return nb::make_tuple(hand_over(std::move(result.a_to_b)), hand_over(std::move(result.b_to_a)));
}

// As `surface`, where an axis is given by its step in space (a row of three).
template <typename Label>
nb::tuple sheared(In<Label, 3> a, In<Label, 3> b, int64_t id, std::array<int64_t, 6> box,
                  std::array<mona::Point, 3> steps, int threads) {
  const long shape[3] = {(long)a.shape(0), (long)a.shape(1), (long)a.shape(2)};
  mona::SurfaceDistances result;
  {
    nb::gil_scoped_release unlocked;
    result = mona::sheared_distances(a.data(), b.data(), shape, crop_of(box), static_cast<Label>(id), steps.data(),
                                     threads);
  }
  return nb::make_tuple(hand_over(std::move(result.a_to_b)), hand_over(std::move(result.b_to_a)));
}

}  // namespace

NB_MODULE(_native, m) {
  // Arrays are never converted: with several dtypes under one name, a conversion would silently pick the wrong one.
  const auto array = [] { return nb::arg().noconvert(); };
  const auto value = [](const char* name) { return nb::arg(name); };
  m.def("nearest", &nearest<uint8_t>, array(), array(), value("threads"));
  m.def("nearest", &nearest<uint16_t>, array(), array(), value("threads"));
  m.def("nearest", &nearest<int16_t>, array(), array(), value("threads"));
  m.def("nearest", &nearest<float>, array(), array(), value("threads"));
  m.def("linear", &linear, array(), array(), value("threads"));
  m.def("argmax", &argmax<uint8_t>, array(), array(), value("order"), value("threads"));
  m.def("argmax", &argmax<uint16_t>, array(), array(), value("order"), value("threads"));
  m.def("resample", &resample, array(), array(), array(), array(), array(), array(), value("threads"));
  m.def("argmax_taps", &argmax_taps<uint8_t>, array(), array(), array(), array(), array(), array(), value("threads"));
  m.def("argmax_taps", &argmax_taps<uint16_t>, array(), array(), array(), array(), array(), array(), value("threads"));
  m.def("overlap", &overlap<uint8_t>, array(), array(), value("threads"));
  m.def("overlap", &overlap<uint16_t>, array(), array(), value("threads"));
  m.def("keep_largest", &keep_largest<uint8_t>, array(), value("only").none(), value("threads"));
  m.def("keep_largest", &keep_largest<uint16_t>, array(), value("only").none(), value("threads"));
  m.def("fill_holes", &fill_holes<uint8_t>, array(), value("id"), value("threads"));
  m.def("fill_holes", &fill_holes<uint16_t>, array(), value("id"), value("threads"));
  m.def("slice_counts", &slice_counts<uint8_t>, array(), value("ids"), array(), value("threads"));
  m.def("slice_counts", &slice_counts<uint16_t>, array(), value("ids"), array(), value("threads"));
  m.def("surface", &surface<uint8_t>, array(), array(), value("id"), value("box"), value("spacing"), value("threads"));
  m.def("surface", &surface<uint16_t>, array(), array(), value("id"), value("box"), value("spacing"), value("threads"));
  m.def("sheared", &sheared<uint8_t>, array(), array(), value("id"), value("box"), value("steps"), value("threads"));
  m.def("sheared", &sheared<uint16_t>, array(), array(), value("id"), value("box"), value("steps"), value("threads"));
}

// The torch face of mona_kernels: buffers of CPU tensors, of any strides where a signature says so.  Shapes are checked
// in mona_kernels.ops, which is the only caller.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "class_sums.hpp"
#include "contrast.hpp"
#include "equivariance.hpp"
#include "pieces.hpp"
#include "pyramid.hpp"
#include "sampling.hpp"

namespace nb = nanobind;

namespace {

template <typename T, int rank>
using Dense = nb::ndarray<T, nb::ndim<rank>, nb::c_contig, nb::device::cpu>;
template <typename T, int rank>
using Strided = nb::ndarray<T, nb::ndim<rank>, nb::device::cpu>;

template <typename T>
mona::Level<T> level_of(const Strided<T, 4>& a) {
  return {a.data(),
          (int64_t)a.shape(0), (int64_t)a.shape(1), (int64_t)a.shape(2), (int64_t)a.shape(3),
          a.stride(0), a.stride(1), a.stride(2), a.stride(3)};
}

template <typename T>
mona::Maps<T> maps_of(const Strided<const T, 3>& a) {
  return {a.data(), a.stride(0), a.stride(1), a.stride(2)};
}

template <typename T>
mona::Pyramid<T> pyramid_of(const std::vector<Strided<T, 4>>& levels, int64_t height, int64_t width) {
  std::vector<mona::Level<T>> all;
  for (const auto& level : levels) all.push_back(level_of<T>(level));
  return {std::move(all), height, width};
}

mona::Philox philox_of(uint64_t seed, uint32_t step, uint32_t stream) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), step, stream};
}

void census(Strided<const float, 4> chance, Strided<const int64_t, 3> labels, Strided<const float, 3> sure,
            Dense<int16_t, 3> known, Dense<int64_t, 1> counts, Dense<int64_t, 2> keys, Dense<int64_t, 1> asking,
            Dense<int64_t, 2> queries, double likely, double hard, uint64_t seed, uint32_t step, uint32_t stream,
            int threads) {
  const auto p = level_of<const float>(chance);
  nb::gil_scoped_release unlocked;
  mona::Census{p.count, p.height, p.width, p.channels, static_cast<float>(likely), static_cast<float>(hard)}.run(
      {p.data, p.s_image, p.s_row, p.s_column}, p.s_channel, maps_of(labels), maps_of(sure), known.data(),
      counts.data(), keys.data(), keys.shape(1), asking.data(), queries.data(), queries.shape(1),
      philox_of(seed, step, stream), threads);
}

void draw_keys(Dense<const int64_t, 2> limits, Dense<const int64_t, 1> filled, Dense<int64_t, 2> out, int64_t ring,
               uint64_t seed, uint32_t step, uint32_t stream, int threads) {
  nb::gil_scoped_release unlocked;
  mona::draw_keys(limits.data(), filled.data(), limits.shape(0), limits.shape(1), ring, out.data(), out.shape(1),
                  philox_of(seed, step, stream), threads);
}

void largest_pieces(Dense<const int64_t, 3> labels, Dense<int64_t, 3> kept, int threads) {
  const int64_t height = labels.shape(1), width = labels.shape(2);
  nb::gil_scoped_release unlocked;
  mona::parallel_for(labels.shape(0), threads, [&](long n, int) {
    mona::largest_pieces(labels.data() + n * height * width, kept.data() + n * height * width, height, width);
  });
}

template <typename T>
void class_sums(std::vector<Strided<const T, 4>> levels, Dense<const int16_t, 3> known, Dense<T, 2> sums, int threads) {
  nb::gil_scoped_release unlocked;
  mona::class_sums<T>(pyramid_of<const T>(levels, known.shape(1), known.shape(2)), known.data(), sums.shape(0),
                      sums.data(), threads);
}

template <typename T>
void class_sums_backward(std::vector<Strided<T, 4>> levels, Dense<const int16_t, 3> known, Dense<const T, 2> grad,
                         int threads) {
  nb::gil_scoped_release unlocked;
  mona::class_sums_backward<T>(pyramid_of<T>(levels, known.shape(1), known.shape(2)), known.data(), grad.shape(0),
                               grad.data(), threads);
}

template <typename T>
void pyramid_gather(std::vector<Strided<const T, 4>> levels, Dense<const int64_t, 1> pixels, int64_t height,
                    int64_t width, Dense<T, 2> rows, int threads) {
  nb::gil_scoped_release unlocked;
  mona::pyramid_gather<T>(pyramid_of<const T>(levels, height, width), pixels.data(), pixels.shape(0), rows.data(),
                          threads);
}

template <typename T>
void pyramid_scatter(std::vector<Strided<T, 4>> levels, Dense<const int64_t, 1> pixels, int64_t height, int64_t width,
                     Dense<const T, 2> rows, int threads) {
  nb::gil_scoped_release unlocked;
  mona::pyramid_scatter<T>(pyramid_of<T>(levels, height, width), pixels.data(), pixels.shape(0), rows.data(), threads);
}

template <typename T>
mona::ContrastOfClass<T> contrast_of(const Dense<const T, 2>& queries, int64_t keys, double temperature, double share) {
  return {(int64_t)queries.shape(0), keys, (int64_t)queries.shape(1), static_cast<T>(temperature),
          static_cast<T>(share)};
}

// parts (Q, 3) is what contrast_gradient needs.
template <typename T>
double contrast_weights(Dense<const T, 2> queries, Dense<const T, 1> mean, Dense<T, 2> scores, Dense<T, 2> parts,
                        std::optional<Dense<const int64_t, 2>> drawn, std::optional<Dense<const T, 1>> weight,
                        double temperature, double share, int threads) {
  nb::gil_scoped_release unlocked;
  return contrast_of<T>(queries, scores.shape(1), temperature, share)
      .weigh(queries.data(), mean.data(), scores.data(), drawn ? drawn->data() : nullptr, drawn ? drawn->shape(1) : 0,
             weight ? weight->data() : nullptr, reinterpret_cast<mona::Parts<T>*>(parts.data()), threads);
}

template <typename T>
void contrast_gradient(Dense<const T, 2> queries, Dense<const T, 1> mean, Dense<T, 2> weighted, Dense<const T, 2> parts,
                       int threads) {
  nb::gil_scoped_release unlocked;
  contrast_of<T>(queries, 0, 1, 1)
      .gradient(queries.data(), mean.data(), weighted.data(), reinterpret_cast<const mona::Parts<T>*>(parts.data()),
                threads);
}

template <typename T>
void equivariance(Strided<const T, 4> probabilities, Strided<const T, 4> mask, Strided<const T, 4> points,
                  Strided<const T, 4> logits, Strided<T, 4> gradient, Dense<double, 1> weights, Dense<double, 1> values,
                  int threads) {
  nb::gil_scoped_release unlocked;
  mona::equivariance<T>(level_of<const T>(probabilities), level_of<const T>(mask), level_of<const T>(points),
                        level_of<const T>(logits), level_of<T>(gradient), weights.data(), values.data(), threads);
}

template <typename T>
void bind_floats(nb::module_& m) {
  const auto array = [] { return nb::arg().noconvert(); };
  m.def("class_sums", &class_sums<T>, array(), array(), array(), nb::arg("threads"));
  m.def("class_sums_backward", &class_sums_backward<T>, array(), array(), array(), nb::arg("threads"));
  m.def("pyramid_gather", &pyramid_gather<T>, array(), array(), nb::arg("height"), nb::arg("width"), array(),
        nb::arg("threads"));
  m.def("pyramid_scatter", &pyramid_scatter<T>, array(), array(), nb::arg("height"), nb::arg("width"), array(),
        nb::arg("threads"));
  m.def("contrast_weights", &contrast_weights<T>, array(), array(), array(), array(), array().none(), array().none(),
        nb::arg("temperature"), nb::arg("share"), nb::arg("threads"));
  m.def("contrast_gradient", &contrast_gradient<T>, array(), array(), array(), array(), nb::arg("threads"));
  m.def("equivariance", &equivariance<T>, array(), array(), array(), array(), array(), array(), array(),
        nb::arg("threads"));
}

}  // namespace

NB_MODULE(_training, m) {
  const auto array = [] { return nb::arg().noconvert(); };
  m.def("census", &census, array(), array(), array(), array(), array(), array(), array(), array(), nb::arg("likely"),
        nb::arg("hard"), nb::arg("seed"), nb::arg("step"), nb::arg("stream"), nb::arg("threads"));
  m.def("draw_keys", &draw_keys, array(), array(), array(), nb::arg("ring"), nb::arg("seed"), nb::arg("step"),
        nb::arg("stream"), nb::arg("threads"));
  m.def("largest_pieces", &largest_pieces, array(), array(), nb::arg("threads"));
  bind_floats<float>(m);
  bind_floats<double>(m);
}

// exp and log without branches or library calls, so that loops over them become vectors; correct to about 1e-7 of the
// result.  Polynomials are those of Cephes (expf, logf).  Without fused multiply-add they give the same bits on every
// instruction set.  float64, which only gradcheck asks for, takes the library's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__GNUC__)
#define MONA_INLINE inline __attribute__((always_inline))
#else
#define MONA_INLINE inline
#endif

namespace mona {

MONA_INLINE double fast_exp(double x) { return std::exp(x); }
MONA_INLINE double fast_log(double x) { return std::log(x); }

MONA_INLINE float from_bits(int32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

MONA_INLINE int32_t to_bits(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

MONA_INLINE float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;  // the ends of float's normal range; NaN passes
  x = x > 88.0f ? 88.0f : x;
  const float shifted = x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: the sum's low bits are round(x log2 e)
  const int32_t n = to_bits(shifted) - 0x4B400000;
  const float whole = shifted - 12582912.0f;
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * (r * r) + r + 1.0f) * from_bits((n + 127) << 23);
}

// Of normal numbers above 0.
MONA_INLINE float fast_log(float x) {
  const int32_t shift = (to_bits(x) - 0x3F3504F3) >> 23;  // the mantissa then lies in sqrt(1/2)..sqrt(2)
  const float m = from_bits(to_bits(x) - (shift << 23)) - 1.0f;
  const float e = static_cast<float>(shift);
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float z = m * m;
  float y = p * m * z;
  y = y - e * 2.12194440e-4f;
  y = y - 0.5f * z;
  return (m + y) + e * 0.693359375f;
}

// Sums and maxima in eight lanes: strict floating point forbids the compiler to reorder a plain sum into vectors.
constexpr int LANES = 8;

template <typename T, typename Term>
MONA_INLINE T sum_of(int64_t count, Term&& term) {
  T lane[LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; ++k) lane[k] += term(i + k);
  T rest = 0;
  for (; i < count; ++i) rest += term(i);
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7])) + rest;
}

template <typename T>
MONA_INLINE T largest(const T* x, int64_t count, T start) {
  T lane[LANES];
  for (int k = 0; k < LANES; ++k) lane[k] = start;
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; ++k) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
  for (; i < count; ++i) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  for (int k = 1; k < LANES; ++k) lane[0] = lane[k] > lane[0] ? lane[k] : lane[0];
  return lane[0];
}

}  // namespace mona

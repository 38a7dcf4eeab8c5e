// exp and log without branches or library calls, so that loops over them become vectors; correct to about 1e-7 of the
// result.  Polynomials are those of Cephes (expf, logf).  Without fused multiply-add they give the same bits on every
// instruction set.  float64, which only gradcheck asks for, takes the library's.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__GNUC__)
#define MONA_INLINE inline __attribute__((always_inline))
#define MONA_RESTRICT __restrict__  // without it a loop over several arrays is checked for overlap, or not a vector
#else
#define MONA_INLINE inline
#define MONA_RESTRICT
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

// Sums run in lanes: strict floating point forbids the compiler to reorder a plain sum into vectors.
constexpr int LANES = 16;

template <typename T>
MONA_INLINE T total_of(const T* lane) {
  T sum = 0;
  for (int k = 0; k < LANES; ++k) sum += lane[k];
  return sum;
}

}  // namespace mona

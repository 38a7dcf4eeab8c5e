// Philox-4x32-10 (Salmon et al., "Parallel random numbers", SC 2011), as ops/sampling/reference.py has it.
#pragma once

#include <array>
#include <cstdint>

namespace mona {

struct Philox {
  uint32_t low, high;  // the seed
  uint32_t step, stream;

  std::array<uint32_t, 4> operator()(uint32_t index, uint32_t cls) const {
    uint32_t c0 = index, c1 = cls, c2 = step, c3 = stream, k0 = low, k1 = high;
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
      c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(b);
      c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(a);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
  }
};

// A number below n, exact while n < 2^32.
inline int64_t below(uint32_t word, int64_t n) {
  return static_cast<int64_t>((static_cast<uint64_t>(word) * static_cast<uint64_t>(n)) >> 32);
}

}  // namespace mona

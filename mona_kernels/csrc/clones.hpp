// Function multiversioning: one source, several instruction sets, the best one chosen when the module loads.
#pragma once

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define MONA_CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define MONA_CLONES  // NEON and every other baseline: the compiler's own vectors
#endif

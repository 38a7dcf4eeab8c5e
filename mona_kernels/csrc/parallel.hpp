// Threads for loops whose iterations are independent.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace mona {

// Calls body(index, worker) for every index in [0, count).  Indices are handed out one by one, because
// slices differ in cost; a caller that adds up floating-point numbers does so per index, never per worker,
// so the number of threads does not change a result.
template <typename Body>
void parallel_for(long count, int threads, Body&& body) {
  threads = static_cast<int>(std::min<long>(std::max(threads, 1), count));
  if (threads <= 1) {
    for (long i = 0; i < count; ++i) body(i, 0);
    return;
  }
  std::atomic<long> next{0};
  std::vector<std::exception_ptr> failures(threads);
  auto work = [&](int worker) {
    try {
      for (long i; (i = next.fetch_add(1)) < count;) body(i, worker);
    } catch (...) {
      failures[worker] = std::current_exception();
    }
  };
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
  work(omp_get_thread_num());
#else
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(work, t);
  work(0);
  for (auto& thread : pool) thread.join();
#endif
  for (auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace mona

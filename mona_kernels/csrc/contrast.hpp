// What is left of the contrast of one class between its two matrix products (method 9.5): scores become the softmax
// weights of the keys, and weighted keys become the gradient of the queries.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "clones.hpp"
#include "parallel.hpp"
#include "vector_math.hpp"

namespace mona {

constexpr double SHORTEST = 1e-12;  // the least length to divide by, as in F.normalize

// What a query's gradient is made of: `keys` times its weighted keys, `positive` times the class mean, `self` times
// the query.
template <typename T>
struct Parts {
  T keys, positive, self;
};

template <typename T>
MONA_CLONES T dot(const T* MONA_RESTRICT a, const T* MONA_RESTRICT b, int64_t count) {
  T lane[LANES] = {};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; ++k) lane[k] += a[i + k] * b[i + k];
  for (; i < count; ++i) lane[0] += a[i] * b[i];
  return total_of(lane);
}

template <typename T>
MONA_CLONES T maximum(const T* x, int64_t count) {
  T lane[LANES];
  for (int k = 0; k < LANES; ++k) lane[k] = x[0];
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int k = 0; k < LANES; ++k) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
  for (; i < count; ++i) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  return *std::max_element(lane, lane + LANES);
}

// e (n) = weight e^(scale x - shift), or without a weight; adds up e and e x.  In one pass of LANES: three loops, one for
// each, take 2.5 times as long.
template <typename T, bool weighted>
MONA_CLONES void exponentials(const T* MONA_RESTRICT x, T* MONA_RESTRICT e, int64_t n, T scale, T shift,
                              const T* MONA_RESTRICT weight, T& sum, T& moment) {
  T first[LANES] = {}, second[LANES] = {};
  const auto add = [&](int64_t i, int lane) {
    const T value = fast_exp(scale * x[i] - shift) * (weighted ? weight[i] : T{1});
    e[i] = value;
    first[lane] += value;
    second[lane] += value * x[i];
  };
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; ++k) add(i + k, k);
  for (; i < n; ++i) add(i, 0);
  sum = total_of(first);
  moment = total_of(second);
}

template <typename T>
MONA_CLONES void scaled(const T* MONA_RESTRICT x, T by, T* MONA_RESTRICT out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * by;
}

template <typename T>
struct ContrastOfClass {
  int64_t queries, keys, dim;  // keys: columns of the scores
  T temperature;
  T share;  // of one query in the loss: 1 / (Q active classes)

  // scores (Q, keys) are products of queries with keys and become weights, times e^(s/t) / sum.
  //   drawn (Q, draws): each query takes those columns, repeats and all; null: all columns
  //   weight (keys): how often each column counts; null: once
  // mean (D) has length 1.  Returns the sum of the losses.
  double weigh(const T* q, const T* mean, T* scores, const int64_t* drawn, int64_t draws, const T* weight,
               Parts<T>* parts, int threads) const {
    std::vector<double> losses(queries);
    parallel_for(queries, threads, [&](long n, int) {
      const T* query = q + n * dim;
      T* row = scores + n * keys;
      const int64_t count = drawn ? draws : keys;
      std::vector<T> taken(drawn ? draws : 0), e(count);
      for (int64_t i = 0; drawn && i < draws; ++i) taken[i] = row[drawn[n * draws + i]];
      const T* x = drawn ? taken.data() : row;
      const T length = std::sqrt(dot(query, query, dim));
      const bool zero = length < static_cast<T>(SHORTEST);
      const T inverse = T{1} / (zero ? static_cast<T>(SHORTEST) : length), scale = inverse / temperature;
      const T attraction = dot(query, mean, dim) * scale;
      // Columns that do not count may hold anything: the largest of all is a bound that does no harm.
      T shift = maximum(x, count) * scale;
      shift = attraction > shift ? attraction : shift;
      const T near = fast_exp(attraction - shift);
      T far, moment;
      (weight ? exponentials<T, true> : exponentials<T, false>)(x, e.data(), count, scale, shift, weight, far, moment);
      const T total = near + far;
      losses[n] = static_cast<double>(shift + std::log(total) - attraction);
      if (drawn) {
        std::fill(row, row + keys, T{0});
        for (int64_t i = 0; i < draws; ++i) row[drawn[n * draws + i]] += e[i] / total;
      } else {
        scaled(e.data(), T{1} / total, row, keys);
      }
      // dL/dq^ = share/t (sum w k - (1 - w+) mean), and dL/dq = (dL/dq^ - q^ <q^, dL/dq^>) / |q|
      const T pull = near / total - T{1}, factor = share * scale;
      const T along = (moment / total) * inverse + pull * attraction * temperature;  // t/share <q^, dL/dq^>
      parts[n] = {factor, factor * pull, zero ? T{0} : -factor * along * inverse};
    });
    double sum = 0;
    for (double loss : losses) sum += loss;
    return sum;
  }

  // weighted (Q, D), sums of weighted keys, become the gradient.
  void gradient(const T* q, const T* mean, T* weighted, const Parts<T>* parts, int threads) const {
    constexpr int64_t block = 16;
    parallel_for((queries + block - 1) / block, threads, [&](long task, int) {
      for (int64_t n = task * block; n < std::min(queries, (task + 1) * block); ++n)
        combine(parts[n], mean, q + n * dim, weighted + n * dim, dim);
    });
  }

  MONA_CLONES static void combine(Parts<T> by, const T* MONA_RESTRICT mean, const T* MONA_RESTRICT query,
                                  T* MONA_RESTRICT out, int64_t dim) {
    for (int64_t k = 0; k < dim; ++k) out[k] = by.keys * out[k] + by.positive * mean[k] + by.self * query[k];
  }
};

}  // namespace mona

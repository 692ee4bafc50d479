// Chapter 10: attention in tiles of 4 x 4 with online softmax, compared with the plain form.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

constexpr std::size_t T = 10, tile = 4;

// Queries and keys have two elements, values one.
struct Problem {
  std::vector<std::array<double, 2>> q, k;
  std::vector<double> v;
  double score(std::size_t i, std::size_t j) const { return q[i][0] * k[j][0] + q[i][1] * k[j][1]; }
};

// All T x T scores are in memory.
std::vector<double> plain_attention(const Problem& in) {
  std::vector<double> scores(T * T), output(T);
  for (std::size_t i = 0; i < T; ++i) {
    double* const s = scores.data() + i * T;
    for (std::size_t j = 0; j <= i; ++j) s[j] = in.score(i, j);
    const double m = *std::max_element(s, s + i + 1);
    double z = 0;
    for (std::size_t j = 0; j <= i; ++j) z += s[j] = std::exp(s[j] - m);
    for (std::size_t j = 0; j <= i; ++j) output[i] += s[j] / z * in.v[j];
  }
  return output;
}

// One query while tiles pass by: its largest score M so far; sums of exponentials and weighted values, times e^-M.
struct Row {
  double m = -std::numeric_limits<double>::infinity(), z = 0, sum = 0;

  void add_tile(const double* s, const double* v, std::size_t keys) {
    const double larger = std::max(m, *std::max_element(s, s + keys));
    z *= std::exp(m - larger);
    sum *= std::exp(m - larger);
    for (std::size_t j = 0; j < keys; ++j) {
      z += std::exp(s[j] - larger);
      sum += std::exp(s[j] - larger) * v[j];
    }
    m = larger;
  }
};

// Only one tile of scores is in memory.
std::vector<double> tiled_attention(const Problem& in) {
  std::vector<double> output(T);
  for (std::size_t first = 0; first < T; first += tile) {
    std::array<Row, tile> rows;
    for (std::size_t number = first / tile + 1; number-- > 0;) {  // from the diagonal to the left
      const std::size_t key = number * tile;
      std::array<std::array<double, tile>, tile> s{};
      for (std::size_t i = first; i < std::min(first + tile, T); ++i) {
        const std::size_t keys = std::min(tile, i + 1 - key);
        for (std::size_t j = 0; j < keys; ++j) s[i - first][j] = in.score(i, key + j);
        Row& row = rows[i - first];
        row.add_tile(s[i - first].data(), &in.v[key], keys);
        if (i == T - 1) std::printf("query 9, keys %zu to %zu: M = %g, Z = %.4f\n", key, key + keys - 1, row.m, row.z);
      }
    }
    for (std::size_t i = first; i < std::min(first + tile, T); ++i) output[i] = rows[i - first].sum / rows[i - first].z;
  }
  return output;
}

int main() {
  Problem in;
  for (int t = 0; t < static_cast<int>(T); ++t) {
    in.q.push_back({t % 3 - 0.5, 1});
    const int half = t / 2;  // rounded down
    in.k.push_back({2.0 - t % 4, 2.0 - half});
    in.v.push_back(t);
  }
  const std::vector<double> plain = plain_attention(in), tiled = tiled_attention(in);
  double largest = 0;
  for (std::size_t i = 0; i < T; ++i) largest = std::max(largest, std::abs(plain[i] - tiled[i]));
  std::printf("output of query 9: %.4f, by all scores %.4f\n", tiled[T - 1], plain[T - 1]);
  std::printf("all outputs %s\n\n     T      T x T KiB  tiled KiB\n", largest < 1e-12 ? "agree" : "differ");
  for (std::int64_t length = 64; length <= 4096; length *= 4) {
    const std::int64_t whole = length * length * 4, in_tiles = 64 * 128 * 4 + length * 3 * 4;
    std::printf("%6d %14.1f %10.1f\n", static_cast<int>(length), static_cast<double>(whole) / 1024,
                static_cast<double>(in_tiles) / 1024);
  }
  return 0;
}

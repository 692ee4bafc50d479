// The results of a product whose long sums, as in the gradient of a weight, are cut into parts that are computed side
// by side: the first in its place, the others in the workspace, added in their order at the end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/strided.hpp"

namespace tally::cpu {

constexpr std::int64_t enough_blocks = 4;  // for two threads, one of which may be late

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// Of sums of k numbers in products [matrices, m, n], of at least so many numbers each; by shape alone.
constexpr std::int64_t parts_of_sums(std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t k,
                                     std::int64_t least) {
  const bool long_sums = matrices < enough_blocks && k >= 4 * std::max(m, n);
  return long_sums ? std::clamp<std::int64_t>(k / least, 1, enough_blocks) : 1;
}

class ProductParts {
 public:
  // Rows ld apart.
  struct Rows {
    float* data = nullptr;
    std::int64_t ld = 0;
  };

  // How many floats the parts but the first take.
  static std::int64_t size(std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t parts) {
    return (parts - 1) * matrices * m * n;
  }

  // c: matrices [m, n], their rows ld_c apart; `others` has size() floats.
  ProductParts(const View& c, std::int64_t ld_c, std::int64_t parts, float* others)
      : c_{c.as<float>(), ld_c},
        matrices_(batch_of(c).numel()),
        m_(c.shape.back(1)),
        n_(c.shape.back(0)),
        parts_(parts),
        others_(others),
        batch_(make_loop(batch_of(c).shape, batch_of(c))) {}

  // The rows of a part's results from i on.
  Rows rows(std::int64_t matrix, std::int64_t part, std::int64_t i) const {
    if (part > 0) return {others_ + ((matrix * (parts_ - 1) + part - 1) * m_ + i) * n_, n_};
    return {c_.data + batch_.element_offsets(matrix)[0] + i * c_.ld, c_.ld};
  }

  const float* data() const { return c_.data; }

  // The other parts onto the first.
  void add() const {
    if (parts_ == 1) return;
    parallel_for_blocks(matrices_ * m_, rows_per_tile(n_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t index = begin; index < end; ++index) {
        float* const sum = rows(index / m_, 0, index % m_).data;
        for (std::int64_t part = 1; part < parts_; ++part) {
          const float* const addend = rows(index / m_, part, index % m_).data;
          for (std::int64_t j = 0; j < n_; ++j) sum[j] += addend[j];
        }
      }
    });
  }

 private:
  Rows c_;
  std::int64_t matrices_, m_, n_, parts_;
  float* others_;
  Loop<1> batch_;  // offsets of the matrices of c
};

}  // namespace tally::cpu

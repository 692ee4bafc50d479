// Tiles of keys that may be skipped, and tiles that must not be. One query and one key meet every bound that decides
// this. 300 tokens are tiles of 128 keys and, from query 256 on, one of 44 rows; the tests are about the tile of the
// keys 0 .. 127. (core/cpu/attention/attention.cpp skips tiles; the other devices compute them all.)
#include <gtest/gtest.h>

#include "core/cpu/attention/tile.hpp"
#include "tests/nn/score_cases.hpp"

namespace tally::skipped_tiles_test {

using testing::compute;
using testing::expect_equal;
using testing::normal_tensor;
using testing::Outcome;
using testing::ShapeCase;
using testing::ShapeParts;
using testing::Sizes;
using testing::Values;

class SkippedTiles : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(SkippedTiles);

constexpr std::int64_t length = 300, first_row = 256, tile_keys = 128;
constexpr double negligible = 40;  // in f64: skipped weights are below e^-40 of a row's sum

// A tensor with a number for each of its indices (the axes of batch and head have size 1).
Tensor filled(const Shape& shape, const std::function<double(std::int64_t row, std::int64_t column)>& value) {
  const std::int64_t columns = shape.back();
  std::vector<double> values;
  for (std::int64_t n = 0; n < shape.numel(); ++n) values.push_back(value(n / columns, n % columns));
  return Tensor::from(values, shape, default_device());
}

// scale q.k = 1 for q = k = unit in one dimension of `width`.
double unit(std::int64_t width) { return std::pow(static_cast<double>(width), 0.25); }

// One query and one key of the far tile are aligned: their score is 100 and their bias -100, and the diagonal is 0.
struct Aligned {
  std::int64_t row, key;
  double others_diagonal = 0;  // score of the other rows on their diagonal
  bool lowered_first = false;  // the first row of the tile has a bias of its own of minus that

  Values values(const Sizes& sizes) const {
    return [this, one = unit(sizes.width)](const std::string& name, const Shape& shape, double deviation) {
      if (name == "q") {
        return filled(shape, [&](std::int64_t i, std::int64_t c) {
          if (i == row) return c == 0 ? 10 * one : 0.0;
          return c == 1 && i >= first_row && (i == first_row || !lowered_first) ? std::sqrt(others_diagonal) * one
                                                                                : 0.0;
        });
      }
      if (name == "k") {
        return filled(shape, [&](std::int64_t j, std::int64_t c) {
          if (c == 0) return j == key ? 10 * one : 0.0;
          return c == 1 && j >= first_row ? std::sqrt(others_diagonal) * one : 0.0;
        });
      }
      if (name == "toeplitz") {
        return filled(shape, [&](std::int64_t, std::int64_t n) {
          return n == row - key ? -100.0 : n < 128 ? 0.0 : -200.0;
        });
      }
      if (name == "row") {
        return filled(shape, [&](std::int64_t, std::int64_t i) {
          return lowered_first && i == first_row ? -others_diagonal : 0.0;
        });
      }
      if (name == "column") {
        return filled(shape, [&](std::int64_t, std::int64_t j) {
          return j == key ? -100.0 : j < tile_keys ? -200.0 : 0.0;
        });
      }
      return normal_tensor(name, shape, deviation);
    };
  }
};

const Sizes sizes{1, 1, length, 8, 8};

const ShapeCase toeplitz{"toeplitz", [](const ShapeParts& x) { x.toeplitz(); }};
const ShapeCase row_column{"row_column", [](const ShapeParts& x) {
                             x.score.biases.push_back(RowColumn{x.of_queries("row"), x.of_keys("column")});
                           }};

void expect_counted(const ShapeCase& one, const Aligned& aligned) {
  SCOPED_TRACE(formatted("{}: query {}, key {}, diagonal of the others {}", one.name, aligned.row, aligned.key,
                         aligned.others_diagonal));
  const Values values = aligned.values(sizes);
  const Outcome composed = compute(one, sizes, DType::f64, false, 0, values);
  expect_equal(compute(one, sizes, DType::f64, true, 0, values), composed);
}

TEST_P(SkippedTiles, CountWhereTheBoundIsMet) {
  for (const ShapeCase& one : {toeplitz, row_column}) {
    for (const std::int64_t row : {first_row, length - 1}) {
      for (const std::int64_t key : {0, 63, 100, 127}) expect_counted(one, {row, key});
    }
  }
}

TEST_P(SkippedTiles, CountForTheRowThatHoldsLeast) {
  for (const ShapeCase& one : {toeplitz, row_column}) {
    for (const std::int64_t row : {first_row, length - 1}) {
      expect_counted(one, {.row = row, .key = 100, .others_diagonal = 60});
    }
  }
  // The first row's bias is as much lower than the other rows' as its score on the diagonal is higher.
  expect_counted(row_column, {.row = length - 1, .key = 100, .others_diagonal = 60, .lowered_first = true});
}

// Every weight is below e^-40, all of them together are not.
TEST_P(SkippedTiles, CountWhereManyLittleWeightsAddUp) {
  const Values values = [](const std::string& name, const Shape& shape, double) {
    if (name == "v") return filled(shape, [](std::int64_t j, std::int64_t) { return j < first_row ? 1.0 : 0.0; });
    if (name == "column") {
      return filled(shape, [](std::int64_t, std::int64_t j) { return j < first_row ? -negligible - 1 : 0.0; });
    }
    if (name == "toeplitz") {
      return filled(shape, [](std::int64_t, std::int64_t n) { return n == 0 ? 0.0 : -negligible - 1; });
    }
    return Tensor::zeros(shape, DType::f64, default_device());
  };
  for (const ShapeCase& one : {toeplitz, row_column}) {
    SCOPED_TRACE(one.name);
    const auto output = [&](bool tiled) {
      return slice(compute(one, sizes, DType::f64, tiled, 0, values).output, 2, first_row, length);
    };
    EXPECT_LE(testing::largest_difference(output(true), output(false)), std::exp(-negligible));
  }
}

// When they reach the far tile, e^-28 to e^-38 of the rows' sticks is left, and nothing of the last row's.
TEST_P(SkippedTiles, CountWhileAnyStickIsLeft) {
  const Values values = [](const std::string& name, const Shape& shape, double) {
    if (name == "v") return filled(shape, [](std::int64_t j, std::int64_t) { return j < tile_keys ? 1.0 : 0.0; });
    const double one = unit(shape.back());
    if (name == "k") return filled(shape, [&](std::int64_t, std::int64_t c) { return c == 0 ? one : 0.0; });
    return filled(shape, [&](std::int64_t i, std::int64_t c) {
      return c != 0 ? 0.0 : i == length - 1 ? 1.4 * one : -1.4 * one;
    });
  };
  const ShapeCase stick{"stick", [](const ShapeParts& x) { x.stick(); }};
  const auto output = [&](bool tiled) {
    return slice(compute(stick, sizes, DType::f64, tiled, 0, values).output, 2, first_row, length);
  };
  const Tensor expected = output(false);
  EXPECT_GT(testing::largest(slice(expected, 2, 42, 43)), std::exp(-negligible));
  EXPECT_LE(testing::largest_difference(output(true), expected), std::exp(-negligible));
}

// Three gates are open in the tiles before the far one, in the last row all: only its positions are beyond the table.
TEST_P(SkippedTiles, ReadTheTableBeforeItsLastEntry) {
  const std::int64_t last = 4;
  const ShapeCase table{
      "table", [&](const ShapeParts& x) { x.score.add_score_mod(contextual_table(x.table(last), x.gates())); }};
  const Values values = [](const std::string& name, const Shape& shape, double deviation) {
    // A gate is open if the product is 40 or more, and closed if it is -40.
    const double one = unit(shape.back());
    if (name == "gate_query") {
      return filled(shape, [&](std::int64_t i, std::int64_t c) {
        return c == 0 ? 40 * one : c == 1 && i == length - 1 ? 80 * one : 0.0;
      });
    }
    if (name == "gate_key") {
      return filled(shape, [&](std::int64_t j, std::int64_t c) {
        const bool open = j == 130 || j == 200 || j == 255;
        return c == 0 ? (open ? one : -one) : c == 1 ? one : 0.0;
      });
    }
    return normal_tensor(name, shape, deviation);
  };
  const auto rows = [&](bool tiled) {
    return slice(compute(table, sizes, DType::f64, tiled, 0, values).output, 2, first_row, length);
  };
  EXPECT_LE(testing::largest_difference(rows(true), rows(false)), 1e-12);
}

// In each head 9 tiles have an unmasked pair: one for the rows from 0 and from 64 on, two from 128 and 192, three from
// 256. The tiles of the first keys can be skipped if the last key before them is far from all rows: for the rows 192 ..
// 255 and 256 .. 299. Skipping does not change values.
void expect_counts(const ShapeCase& one, const cpu::TileCounts& of_a_head, const Values& values = normal_tensor) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    SCOPED_TRACE(formatted("{} in {}", one.name, dtype));
    const Sizes two{1, 2, length, 8, 8};
    cpu::TileCounts counted;
    cpu::counted_tiles = &counted;
    compute(one, two, dtype, true, 0, values);
    cpu::counted_tiles = nullptr;
    constexpr std::int64_t passes = 4;  // of two heads, forward and backward
    EXPECT_EQ(counted.computed, passes * of_a_head.computed);
    EXPECT_EQ(counted.saturated, passes * of_a_head.saturated);
    EXPECT_EQ(counted.skipped, passes * of_a_head.skipped);
  }
}

TEST(SkippedTilesOnCpu, AreThoseThatDoNotMatter) {
  const auto falling = [](const Shape& shape) {
    return filled(shape, [](std::int64_t, std::int64_t n) { return -10.0 * static_cast<double>(n); });
  };
  const Values steep = [&](const std::string& name, const Shape& shape, double deviation) {
    if (name == "toeplitz") return falling(shape);
    if (name == "row") return falling(shape);
    if (name == "column") return negate(falling(shape));
    return normal_tensor(name, shape, deviation);
  };
  const cpu::TileCounts all{.computed = 9};
  expect_counts({"none", [](const ShapeParts&) {}}, all);
  expect_counts(toeplitz, all);
  expect_counts(toeplitz, {.computed = 7, .skipped = 2}, steep);
  expect_counts(row_column, {.computed = 7, .skipped = 2}, steep);
  ShapeCase window{"window", [](const ShapeParts&) {}};
  window.mask.window = 20;
  expect_counts(window, {.computed = 7});
}

// All products are positive, so that each of 65 keys takes half of a stick or more.
TEST(SkippedTilesOnCpu, AreThoseLeftOfSticksThatAreUsedUp) {
  const Values positive = [](const std::string& name, const Shape& shape, double deviation) {
    const Tensor tensor = normal_tensor(name, shape, deviation);
    return name == "q" || name == "k" ? abs(tensor) : tensor;
  };
  expect_counts({"stick", [](const ShapeParts& x) { x.stick(); }}, {.computed = 7, .skipped = 2}, positive);
}

// Positions beyond the end of a table: gates do not matter there, of the score or of their own.
TEST(SkippedTilesOnCpu, LookUpNothingBeyondTheEndOfATable) {
  for (const bool own_gates : {false, true}) {
    const ShapeCase table{own_gates ? "table, own gates" : "table", [&](const ShapeParts& x) {
                            x.score.add_score_mod(contextual_table(x.table(8), own_gates ? x.gates() : Gates{}));
                          }};
    expect_counts(table, {.computed = 9, .saturated = 2});
  }
}

}  // namespace tally::skipped_tiles_test

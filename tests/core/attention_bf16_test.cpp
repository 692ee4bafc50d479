// The matmuls of attention's tiles with bf16 operands, with every kind of instructions, compared with sums in f64.
#include "core/cpu/attention/products.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/cpu/floating_mode.hpp"
#include "core/error.hpp"
#include "tests/core/bf16_kinds.hpp"

namespace tally::attention_bf16_test {

using cpu::tile_keys;
using cpu::tile_rows;

using Kind = testing::Bf16Kind;
using testing::bf16_kinds;

struct Case {
  std::int64_t keys, width;
  cpu::RowTile rows;
  cpu::KeyTile tile;
};
cpu::RowTile row_tile(std::int64_t last_key, std::int64_t rows) {
  cpu::RowTile tile;
  tile.last_key = last_key;
  tile.rows = rows;
  tile.lanes = cpu::round_up(rows, cpu::lane_step);
  return tile;
}
std::vector<Case> cases() {
  return {
      {1, 1, row_tile(0, 1), {0, 1}},          {64, 64, row_tile(0, 64), {0, 64}},  // the diagonal in both blocks
      {300, 64, row_tile(128, 64), {0, 128}},                                       // seen by all
      {300, 16, row_tile(256, 44), {256, 44}},                                      // the last rows of a text
      {200, 40, row_tile(136, 64), {128, 72}},  // keys and rows that begin at different numbers
      {200, 130, row_tile(100, 17), {96, 21}},  // one lane of the second vector, a tile without its first keys
      {160, 33, row_tile(127, 33), {64, 64}},  {130, 300, row_tile(66, 64), {0, 128}},
  };
}
std::string describe(const Case& one) {
  return formatted("K {} d {}, rows from {}, {}, keys from {}, {}", one.keys, one.width, one.rows.last_key,
                   one.rows.rows, one.tile.first, one.tile.keys);
}

float rounded(float x) { return static_cast<float>(Bfloat16(x)); }
std::vector<float> numbers(unsigned seed, std::int64_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& one : x) one = normal(random);
  return x;
}

// The results of one kind for a case. Numbers that must not be read are NaN.
struct Products {
  std::vector<float> pairs, by_lanes, by_keys;
};
struct Operands {
  std::int64_t ld;
  std::vector<float> x, y, tile, lanes, sums;
  explicit Operands(const Case& one)
      : ld(cpu::round_up(one.width, cpu::vector_lanes<float>)),
        x(numbers(1, one.keys * one.width)),
        y(static_cast<std::size_t>(tile_rows * ld)),
        tile(numbers(2, tile_keys * tile_rows)),
        lanes(numbers(3, one.width * tile_rows)),
        sums(numbers(4, one.tile.keys * ld)) {
    std::vector<float> drawn = numbers(5, tile_rows * ld);
    for (std::int64_t i = 0; i < one.rows.rows; ++i) {
      for (std::int64_t c = 0; c < one.width; ++c) at(y, i * ld + c) = at(drawn, i * ld + c);
    }
    for (std::int64_t j = 0; j < tile_keys; ++j) {
      for (std::int64_t i = 0; i < tile_rows; ++i) {
        if (!seen(one, j, i)) at(tile, j * tile_rows + i) = 0;
        const bool read = j < one.tile.keys && i < one.rows.lanes && i >= one.tile.first_lane(one.rows, j);
        if (!read) at(tile, j * tile_rows + i) = std::nanf("");
      }
    }
  }
  static float& at(std::vector<float>& x, std::int64_t n) { return x[static_cast<std::size_t>(n)]; }
  static bool seen(const Case& one, std::int64_t j, std::int64_t i) {
    return j < one.tile.keys && i < one.rows.rows && one.tile.first + j <= one.rows.last_key + i;
  }
};

Products products_of(const Case& one, const cpu::Microkernel& tiles, bool from_bf16) {
  Operands own(one);
  const auto operands = [&](Arena& arena) { return cpu::Bf16Operands(one.keys, one.width, {}, arena, tiles); };
  Arena counting(nullptr);
  operands(counting);
  std::vector<std::byte> memory(static_cast<std::size_t>(counting.bytes()) + 64, std::byte{0xff});  // of NaN
  void* begin = memory.data();
  std::size_t room = memory.size();
  Arena arena(std::align(64, memory.size() - 64, begin, room));
  cpu::Bf16Operands bf16 = operands(arena);
  const cpu::InKernelMode mode;
  tiles.begin();
  std::vector<Bfloat16> kept(own.x.size());
  for (std::size_t n = 0; n < kept.size(); ++n) kept[n] = Bfloat16(own.x[n]);
  for (std::int64_t first = 0; first < one.keys; first += tile_keys) {
    const std::int64_t count = std::min(tile_keys, one.keys - first);
    if (from_bf16) {
      bf16.pack_x(kept.data() + first * one.width, one.width, first, count);
    } else {
      bf16.pack_x(own.x.data() + first * one.width, one.width, first, count);
    }
  }
  bf16.pack_y(own.y.data(), own.ld);
  std::vector<float> pairs(tile_keys * tile_rows, std::nanf(""));
  bf16.pair_products(one.rows, one.tile, pairs.data());
  std::vector<float> tile = own.tile;
  bf16.add_keys_to_lanes(one.rows, one.tile, own.lanes.data(), tile.data());
  tile = own.tile;
  bf16.add_rows_to_keys(one.rows, one.tile, own.sums.data(), own.ld, tile.data());
  tiles.end();
  return {pairs, own.lanes, own.sums};
}

TEST(AttentionBf16, MultipliesWhatTilesHaveOnEveryKind) {
  for (const Case& one : cases()) {
    Operands own(one);
    const auto at = Operands::at;
    for (const Kind& kind : bf16_kinds()) {
      SCOPED_TRACE(describe(one) + " by " + kind.name);
      Products found = products_of(one, *kind.kernel, false);
      const Products again = products_of(one, *kind.kernel, true);
      EXPECT_EQ(found.by_lanes, again.by_lanes);
      EXPECT_EQ(found.by_keys, again.by_keys);
      // Sums of up to 300 terms of size 1.
      constexpr double tolerance = 4e-5;
      for (std::int64_t j = 0; j < one.tile.keys; ++j) {
        for (std::int64_t i = 0; i < one.rows.rows; ++i) {
          double expected = 0;
          for (std::int64_t c = 0; c < one.width; ++c) {
            expected += static_cast<double>(rounded(at(own.x, (one.tile.first + j) * one.width + c))) *
                        static_cast<double>(rounded(at(own.y, i * own.ld + c)));
          }
          const float pair = at(found.pairs, j * tile_rows + i);
          if (i < one.tile.first_lane(one.rows, j)) expected = 0;
          ASSERT_NEAR(pair, expected, tolerance) << "key " << j << " row " << i;
        }
      }
      for (std::int64_t c = 0; c < one.width; ++c) {
        for (std::int64_t i = 0; i < one.rows.rows; ++i) {
          double expected = at(own.lanes, c * tile_rows + i);
          for (std::int64_t j = 0; j < one.tile.keys; ++j) {
            if (!Operands::seen(one, j, i)) continue;
            expected += static_cast<double>(rounded(at(own.tile, j * tile_rows + i))) *
                        static_cast<double>(rounded(at(own.x, (one.tile.first + j) * one.width + c)));
          }
          ASSERT_NEAR(at(found.by_lanes, c * tile_rows + i), expected, tolerance) << "column " << c << " row " << i;
        }
        for (std::int64_t j = 0; j < one.tile.keys; ++j) {
          double expected = at(own.sums, j * own.ld + c);
          for (std::int64_t i = 0; i < one.rows.rows; ++i) {
            if (!Operands::seen(one, j, i)) continue;
            expected += static_cast<double>(rounded(at(own.tile, j * tile_rows + i))) *
                        static_cast<double>(rounded(at(own.y, i * own.ld + c)));
          }
          ASSERT_NEAR(at(found.by_keys, j * own.ld + c), expected, tolerance) << "column " << c << " key " << j;
        }
      }
    }
  }
}

}  // namespace tally::attention_bf16_test

// Every answer of AttentionMask compared with its definition, one pair after the other.
#include "core/attention/mask.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"

namespace tally::mask_test {

constexpr std::int64_t length = 24;

bool seen(const AttentionMask& v, std::int64_t i, std::int64_t j) {
  if (j > i) return false;
  return j < v.first || ((v.window == 0 || i - j < v.window) && (v.chunk == 0 || i / v.chunk == j / v.chunk));
}

TEST(AttentionMask, AnswersAsItIsDefined) {
  for (const AttentionMask v :
       {AttentionMask{}, AttentionMask{.window = 1}, AttentionMask{.window = 5}, AttentionMask{.window = 5, .first = 3},
        AttentionMask{.window = 100}, AttentionMask{.chunk = 1}, AttentionMask{.chunk = 7},
        AttentionMask{.chunk = 7, .first = 2}, AttentionMask{.window = 4, .chunk = 6},
        AttentionMask{.window = 9, .chunk = 6, .first = 30}}) {
    SCOPED_TRACE(formatted("window {} chunk {} first {}", v.window, v.chunk, v.first));
    EXPECT_EQ(v.is_causal_only(), v.window == 0 && v.chunk == 0);
    for (std::int64_t i = 0; i < length; ++i) {
      std::int64_t count = 0;
      for (std::int64_t j = 0; j < length; ++j) {
        count += seen(v, i, j) ? 1 : 0;
        EXPECT_EQ(v.attends(i, j), seen(v, i, j)) << i << " " << j;
        // From here on every key up to itself.
        if (j >= v.begin(i) && j <= i) {
          EXPECT_TRUE(seen(v, i, j)) << i << " " << j;
        }
      }
      EXPECT_EQ(v.count(i), count) << i;
      EXPECT_GE(v.begin(i), i > 0 ? v.begin(i - 1) : 0);
    }
  }
}

// No tile with an unmasked pair may be skipped, and no tile with a masked pair may count as unmasked.
TEST(AttentionMask, TellsTilesThatAreSeenByNoneAndByAll) {
  for (const AttentionMask v : {AttentionMask{}, AttentionMask{.window = 5, .first = 3}, AttentionMask{.chunk = 7},
                                AttentionMask{.window = 4, .chunk = 6}}) {
    for (std::int64_t i = 0; i < length; i += 4) {
      for (std::int64_t j = 0; j < length; j += 3) {
        bool any = false, all = true;
        for (std::int64_t row = i; row < i + 4; ++row) {
          for (std::int64_t key = j; key < j + 3; ++key) {
            any |= seen(v, row, key);
            all &= seen(v, row, key);
          }
        }
        if (any) {
          EXPECT_TRUE(v.attends_any(i, i + 3, j, j + 2)) << i << " " << j;
        }
        if (!all) {
          EXPECT_FALSE(v.attends_all(i, i + 3, j, j + 2)) << i << " " << j;
        }
        if (v.first == 0) {
          EXPECT_EQ(v.attends_any(i, i + 3, j, j + 2), any) << i << " " << j;
        }
      }
    }
  }
}

}  // namespace tally::mask_test

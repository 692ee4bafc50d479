// A share of many cases.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tests/devices.hpp"

namespace tally::testing {

// One of each `step` that stand one after the other, or of the last that are fewer; whichever, since lists have
// patterns. The same ones in every run.
template <class T>
std::vector<T> every(std::size_t step, std::vector<T> all) {
  if (asked_for("TALLY_TEST_EVERYTHING")) return all;
  if (sanitized) step *= 3;
  std::vector<T> some;
  for (std::size_t begin = 0; begin < all.size(); begin += step) {
    const std::size_t drawn = begin + (begin * 2654435761U >> 8U) % std::min(step, all.size() - begin);
    some.push_back(std::move(all[drawn]));
  }
  return some;
}

}  // namespace tally::testing

// A share of many cases.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tests/devices.hpp"

namespace tally::testing {

// One element of each run of `step` neighbours, or of the shorter last run. The choice within a run varies, since lists
// have patterns, but is the same whenever tests run.
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

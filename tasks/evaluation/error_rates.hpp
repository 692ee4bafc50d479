// Wrong tokens or sequences of runs that differ in the seed alone, together and each by itself: for tables and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/evaluation/evaluate.hpp"

namespace tally {

struct ErrorRates {
  std::vector<double> rates;       // of each
  std::int64_t wrong = 0, of = 0;  // together

  void add(const Evaluation& evaluation, bool sequences);

  // "4.9% (4.4)": mean and deviation; the mean alone for one seed, "-" for none.
  std::string mean_text() const;
  // "13 of 26,400 (0.029-0.084%)".
  std::string pooled_text() const;
  // {"mean", "deviation", "n", "wrong", "of", "low", "high"}: the last two are Wilson's interval of all together.
  JsonValue json() const;
};

ErrorRates error_rates(const std::vector<Evaluation>& evaluations, bool sequences);

}  // namespace tally

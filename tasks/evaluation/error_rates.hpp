// Token or sequence error rates of runs that differ only in the seed, pooled and for each run, for tables and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/evaluation/evaluate.hpp"
#include "tasks/print/table.hpp"

namespace tally {

struct ErrorRates {
  std::vector<double> rates;       // of each run
  std::int64_t wrong = 0, of = 0;  // pooled

  void add(const Evaluation& evaluation, bool sequences);

  // "4.9% (4.4)": mean and standard deviation; only the mean for one seed, "-" for none.
  ResultCell mean_cell() const;
  // "13 of 26,400 (0.029-0.084%)".
  ResultCell pooled_cell() const;
  // Of both cells: {"mean", "deviation", "n", "wrong", "of", "low", "high"}. The last two are Wilson's interval of the
  // pooled counts.
  JsonValue json() const;
};

ErrorRates error_rates(const std::vector<Evaluation>& evaluations, bool sequences);

// The mean error; of a text the perplexity, with its counts in JSON.
ResultCell result_cell(const std::vector<Evaluation>& evaluations, bool sequences);

}  // namespace tally

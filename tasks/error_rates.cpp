#include "tasks/error_rates.hpp"

#include "core/error.hpp"
#include "tasks/statistics.hpp"

namespace tally {

ErrorRates::ErrorRates(const std::vector<Evaluation>& evaluations, bool sequences) {
  for (const Evaluation& e : evaluations) {
    wrong += sequences ? e.wrong_sequences : e.wrong;
    of += sequences ? e.sequences : e.scored;
    rates.push_back(sequences ? e.sequence_error() : e.token_error());
  }
}

std::string ErrorRates::mean_text() const {
  const MeanDeviation mean = mean_deviation(rates);
  if (mean.n == 0) return "-";
  return percent_text(mean.mean) + (mean.n > 1 ? concat(" (", percent_number(mean.deviation), ")") : "");
}

std::string ErrorRates::pooled_text() const {
  return concat(with_commas(wrong), " of ", with_commas(of), " (", interval_text(wrong, of), ")");
}

JsonValue ErrorRates::json() const {
  const MeanDeviation mean = mean_deviation(rates);
  const Interval interval = wilson_interval(wrong, of);
  return JsonValue::object({{"mean", mean.mean},
                            {"deviation", mean.deviation},
                            {"n", mean.n},
                            {"wrong", wrong},
                            {"of", of},
                            {"low", interval.low},
                            {"high", interval.high}});
}

}  // namespace tally

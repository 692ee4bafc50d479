#include "tasks/evaluation/error_rates.hpp"

#include "core/error.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {

void ErrorRates::add(const Evaluation& evaluation, bool sequences) {
  rates.push_back(sequences ? evaluation.sequence_error() : evaluation.token_error());
  wrong += sequences ? evaluation.wrong_sequences : evaluation.wrong;
  of += sequences ? evaluation.sequences : evaluation.scored;
}

ErrorRates error_rates(const std::vector<Evaluation>& evaluations, bool sequences) {
  ErrorRates errors;
  for (const Evaluation& evaluation : evaluations) errors.add(evaluation, sequences);
  return errors;
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

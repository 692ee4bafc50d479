#include "tasks/evaluation/error_rates.hpp"

#include "core/error.hpp"
#include "tasks/evaluation/text_counts.hpp"
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

ResultCell result_cell(const std::vector<Evaluation>& evaluations, bool sequences) {
  if (evaluations.empty() || !evaluations.front().text) return error_rates(evaluations, sequences).mean_cell();
  std::vector<double> losses, bits_per_byte;
  for (const Evaluation& e : evaluations) {
    losses.push_back(e.loss);
    bits_per_byte.push_back(e.bits_per_byte());
  }
  ResultCell cell = perplexity_cell(losses, 2);
  if (evaluations.front().text->bytes > 0) cell.json.set("bits_per_byte", mean_deviation(bits_per_byte).mean);
  cell.json.set("text", text_counts_json(*evaluations.front().text).set("split", evaluations.front().split));
  return cell;
}

ResultCell ErrorRates::mean_cell() const { return {percent_cell(rates).text, json()}; }

ResultCell ErrorRates::pooled_cell() const {
  return {formatted("{} of {} ({})", with_commas(wrong), with_commas(of), interval_text(wrong, of)), json()};
}

JsonValue ErrorRates::json() const {
  const Interval interval = wilson_interval(wrong, of);
  JsonValue json = mean_json(mean_deviation(rates));
  json.set("wrong", wrong).set("of", of).set("low", interval.low).set("high", interval.high);
  return json;
}

}  // namespace tally

#include "tasks/evaluation/error_rates.hpp"

#include <array>
#include <utility>

#include "core/error.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

constexpr std::array<std::pair<const char*, std::int64_t TextCounts::*>, 6> text_count_names{
    {{"context", &TextCounts::context},
     {"stride", &TextCounts::stride},
     {"tokens", &TextCounts::tokens},
     {"words", &TextCounts::words},
     {"bytes", &TextCounts::bytes},
     {"documents", &TextCounts::documents}}};

constexpr std::array<std::pair<const char*, std::string TextCounts::*>, 2> checksum_names{
    {{"token_checksum", &TextCounts::token_checksum}, {"tokenizer_checksum", &TextCounts::tokenizer_checksum}}};

}  // namespace

JsonValue text_counts_json(const TextCounts& counts) {
  JsonValue json = JsonValue::object();
  for (const auto& [name, count] : text_count_names) json.set(name, counts.*count);
  for (const auto& [name, checksum] : checksum_names) json.set(name, counts.*checksum);
  return json;
}

TextCounts text_counts_from_json(const JsonValue& json) {
  TextCounts counts;
  for (const auto& [name, count] : text_count_names) counts.*count = json.integer(name);
  for (const auto& [name, checksum] : checksum_names) counts.*checksum = json.string(name);
  return counts;
}

JsonValue perplexity_json(const std::vector<double>& losses) {
  const ExponentialMean mean = mean_of_exponentials(losses);
  return JsonValue::object({{"mean", mean.value.mean},
                            {"deviation", mean.value.deviation},
                            {"n", mean.value.n},
                            {"log_mean", mean.log_mean},
                            {"log_deviation", mean.log_deviation}});
}

ResultCell perplexity_cell(const std::vector<double>& losses, int digits) {
  const ExponentialMean mean = mean_of_exponentials(losses);
  return {spread_text(exponential_text(mean.log_mean), exponential_text(mean.log_deviation, digits), mean.value.n),
          perplexity_json(losses)};
}

std::string text_counts_text(const TextCounts& counts) {
  return formatted(
      "context {}, stride {}, {} tokens, {} bytes, {} words, {} documents; checksums: tokens {}, tokenizer {}",
      counts.context, counts.stride, with_commas(counts.tokens), with_commas(counts.bytes), with_commas(counts.words),
      with_commas(counts.documents), counts.token_checksum, counts.tokenizer_checksum);
}

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

#include "tasks/evaluation/text_counts.hpp"

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
  return {spread_text(mean.mean_text(), mean.deviation_text(digits), mean.value.n), perplexity_json(losses)};
}

std::string text_counts_text(const TextCounts& counts) {
  return formatted(
      "context {}, stride {}, {} tokens, {} bytes, {} words, {} documents; checksums: tokens {}, tokenizer {}",
      counts.context, counts.stride, with_commas(counts.tokens), with_commas(counts.bytes), with_commas(counts.words),
      with_commas(counts.documents), counts.token_checksum, counts.tokenizer_checksum);
}

}  // namespace tally

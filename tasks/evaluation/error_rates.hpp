// Token or sequence error rates of runs that differ only in the seed, pooled and for each run, for tables and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/data/task.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/print/table.hpp"

namespace tally {

// The token, word and byte counts (TextCounts, tasks/data/task.hpp) reported with every perplexity.

// An object with all its members.
JsonValue text_counts_json(const TextCounts& counts);
// The reverse, from an object that may hold more. Throws Error for a member that is missing or of another kind.
TextCounts text_counts_from_json(const JsonValue& json);
// "context 256, stride 128, 159,052 tokens, 436,201 bytes, 70,000 words, 5 documents; checksums: tokens 126f6c2a,
// tokenizer ac9a7783"
std::string text_counts_text(const TextCounts& counts);

// Perplexities over seeds, the exponentials of these losses: {"mean", "deviation", "n", "log_mean", "log_deviation"}. A
// number that does not fit a double is null.
JsonValue perplexity_json(const std::vector<double>& losses);
// "24.65 (0.31)": the same as a cell of a table. digits: of the deviation.
ResultCell perplexity_cell(const std::vector<double>& losses, int digits);

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

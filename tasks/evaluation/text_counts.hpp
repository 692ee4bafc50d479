// What a perplexity was taken over (TextCounts, tasks/data/task.hpp), told wherever one is.
#pragma once

#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/data/task.hpp"

namespace tally {

// An object of all its members.
JsonValue text_counts_json(const TextCounts& counts);
// The other way round, from an object that may hold more. Throws Error for a member that is missing or of another kind;
// only those of the first version have no checksums.
TextCounts text_counts_from_json(const JsonValue& json);
// "context 256, stride 128, 159,052 tokens, 436,201 bytes, 70,000 words, 5 documents; checksums: tokens 126f6c2a,
// tokenizer ac9a7783"
std::string text_counts_text(const TextCounts& counts);

// Perplexities over seeds, exp of these losses: {"mean", "deviation", "n", "log_mean", "log_deviation"}, null for a
// number that does not fit a double.
JsonValue perplexity_json(const std::vector<double>& losses);

}  // namespace tally

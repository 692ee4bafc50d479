// The token, word and byte counts (TextCounts, tasks/data/task.hpp) reported with every perplexity.
#pragma once

#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/data/task.hpp"
#include "tasks/print/table.hpp"

namespace tally {

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

}  // namespace tally

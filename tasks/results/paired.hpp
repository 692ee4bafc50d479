// Compares two language models on the same tokens: the difference of their losses and its standard error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/evaluation/loss_blocks.hpp"
#include "tasks/results/report.hpp"

namespace tally {

struct PairedSplit {
  std::string split;
  TextCounts text;
  double first = 0, second = 0;  // nats per token
  LossDifference difference;     // first - second; its error is over the same parts of the text in both
  std::size_t parts = 0;

  bool differs() const;  // from 0, by Student's t test over the parts
};

// The differences on every split that both runs evaluated at their end. Throws Error naming the run without such a
// result, and if text, tokenizer, context or stride differ.
std::vector<PairedSplit> paired(const RunSummary& first, const RunSummary& second);

// A table in Markdown, and a description of its columns.
std::string paired_text(const RunSummary& first, const RunSummary& second, const std::vector<PairedSplit>& splits);
JsonValue paired_json(const RunSummary& first, const RunSummary& second, const std::vector<PairedSplit>& splits);

}  // namespace tally

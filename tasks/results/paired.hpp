// Two language models on the same tokens: by how much their losses differ, and how sure that is.
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
  LossDifference difference;     // first - second; its error is over the parts of the text, the same in both
  std::size_t parts = 0;
};

// Of every split that both runs were evaluated on at their end. Throws Error naming the run that has no such result,
// and where text, tokenizer, context or stride differ.
std::vector<PairedSplit> paired(const RunSummary& first, const RunSummary& second);

// A table in Markdown, and what its columns are.
std::string paired_text(const RunSummary& first, const RunSummary& second, const std::vector<PairedSplit>& splits);
JsonValue paired_json(const RunSummary& first, const RunSummary& second, const std::vector<PairedSplit>& splits);

}  // namespace tally

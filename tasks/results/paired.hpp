// Compares two language models on the same tokens.
#pragma once

#include "tasks/print/table.hpp"
#include "tasks/results/report.hpp"

namespace tally {

// The difference of their losses, with its standard error over the same parts of the text, on every split that both
// runs evaluated at their end. Throws Error naming the run without such a result, and if text, tokenizer, context or
// stride differ.
ResultTable paired(const RunSummary& first, const RunSummary& second);

}  // namespace tally

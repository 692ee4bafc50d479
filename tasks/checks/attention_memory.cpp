#include "tasks/checks/attention_memory.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

constexpr std::int64_t heads = 4, head_width = 64;

// Only the combination of this assignment, on all heads of all layers.
EncodingChoice alone(const EncodingChoice& choice, const EncodingChoice::Assignment& assignment) {
  EncodingChoice own;
  for (const EncodingChoice::Part& part : choice.parts) {
    if (std::ranges::count(assignment.sum, part.entry) > 0) own.parts.push_back({part.entry, part.options->clone()});
  }
  own.assignments.push_back({.mask = assignment.mask, .sum = assignment.sum});
  return own;
}

}  // namespace

AttentionMemory attention_memory(const EncodingChoice& choice, const EncodingChoice::Assignment& assignment) {
  RunConfig config = RunConfig::make("flip-flop", "none", "quick");
  config.encoding = alone(choice, assignment);
  config.model.layers = 1, config.model.heads = heads, config.model.width = heads * head_width;
  config.run.batch = 1;
  BenchOptions timed(std::move(config));
  const auto bytes_at = [&](std::int64_t length) {
    timed.length = timed.max_length = length;
    return estimate_attention(timed).total();
  };
  AttentionMemory memory;
  memory.bytes = bytes_at(attention_memory_length);
  const double half = bytes_at(attention_memory_length / 2), length = attention_memory_length;
  // A linear term doubles with the length and cancels; half of a quadratic term c T² remains.
  memory.squares = memory.bytes - 2 * half > 0.25 * sizeof(float) * length * length / 2;
  memory.form = attention_form(timed.model(), 1);
  return memory;
}

std::vector<std::string> square_memory_notes(const EncodingChoice& choice) {
  std::vector<std::string> notes;
  std::set<std::string> told;
  for (const EncodingChoice::Assignment& assignment : choice.acting()) {
    if (assignment.sum.size() < 2 || !told.insert(assignment.sum_text()).second) continue;
    AttentionMemory memory;
    try {
      memory = attention_memory(choice, assignment);
    } catch (const Error&) {  // options of another width, such as a factor for each of its planes: nothing is known
      continue;
    }
    if (!memory.squares) continue;
    notes.push_back(formatted(
        "{}{}: memory grows with the square of the length; {} heads of width {} take {} for {} tokens",
        assignment.sum_text(),
        memory.form == "composed" ? " uses reference attention" : " uses fused attention and a number for each pair",
        heads, head_width, bytes_text(memory.bytes), with_commas(attention_memory_length)));
  }
  return notes;
}

}  // namespace tally

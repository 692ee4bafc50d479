#include "tasks/results/paired.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "tasks/evaluation/loss_blocks.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

void check_texts(const RunSummary& run) {
  check(run.state == RunState::finished, "paired", "'{}' is {}: it has no results yet", printable(run.path),
        name_of(run.state));
  check(std::ranges::any_of(run.results, [](const Evaluation& e) { return !e.blocks.nats.empty(); }), "paired",
        "'{}' has no losses of the parts of a text: it is no language model, or of an earlier version",
        printable(run.path));
}

// Whether the difference is not 0 by Student's t test over the parts.
bool differs(const LossDifference& difference, std::size_t parts) {
  if (difference.error == 0) return difference.mean != 0;
  return student_p(difference.mean / difference.error, static_cast<double>(parts - 1)) < test_level;
}

}  // namespace

ResultTable paired(const RunSummary& first, const RunSummary& second) {
  check_texts(first);
  check_texts(second);
  const auto name = [](const RunSummary& run) { return formatted("{} ({})", printable(run.path), run.config.label()); };
  ResultTable table{formatted("Nats per token at the end, and the difference on the same tokens with its standard "
                              "error over the parts of the text,\nwhich covers no difference between seeds. It differs "
                              "from 0 if Student's t test says so at the 5% level.\n\nA: {}\nB: {}",
                              name(first), name(second)),
                    {{"split"},
                     {"A", "a"},
                     {"B", "b"},
                     {"A - B", "difference"},
                     {"+-", "error"},
                     {"differs"},
                     {"tokens"},
                     {"parts"},
                     {"context"},
                     {"stride"}}};
  for (const Evaluation& a : first.results) {
    const auto b = std::ranges::find(second.results, a.split, &Evaluation::split);
    if (!a.text || b == second.results.end() || !b->text) continue;
    const auto same = [&](std::string_view what, const auto& ours, const auto& theirs) {
      check(ours == theirs, "paired", "{}: the {} is {} in '{}' and {} in '{}'", a.split, what, ours,
            printable(first.path), theirs, printable(second.path));
    };
    same("tokenizer's checksum", a.text->tokenizer_checksum, b->text->tokenizer_checksum);
    same("tokens' checksum", a.text->token_checksum, b->text->token_checksum);
    same("context", a.text->context, b->text->context);
    same("stride", a.text->stride, b->text->stride);
    const LossDifference difference = paired_difference(a.blocks, b->blocks);
    const bool differ = differs(difference, a.blocks.nats.size());
    const auto number = [](double value, int digits) { return ResultCell(short_number(value, digits), value); };
    table.rows.push_back({a.split, number(a.loss, 4), number(b->loss, 4), number(difference.mean, 4),
                          number(difference.error, 2), ResultCell(differ ? "yes" : "no", differ),
                          count_cell(a.text->tokens), count_cell(static_cast<std::int64_t>(a.blocks.nats.size())),
                          ResultCell(to_text(a.text->context), a.text->context),
                          ResultCell(to_text(a.text->stride), a.text->stride)});
  }
  check(!table.rows.empty(), "paired", "'{}' and '{}' were evaluated on no split in common", printable(first.path),
        printable(second.path));
  return table;
}

}  // namespace tally

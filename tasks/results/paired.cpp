#include "tasks/results/paired.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"

namespace tally {
namespace {

void check_texts(const RunSummary& run) {
  check(run.state == RunState::finished, "paired", "'", printable(run.path), "' is ", name_of(run.state),
        ": it has no results yet");
  check(std::ranges::any_of(run.results, [](const Evaluation& e) { return !e.blocks.nats.empty(); }), "paired", "'",
        printable(run.path),
        "' has no losses of the parts of a text: it is no language model, or of an earlier version");
}

}  // namespace

std::vector<PairedSplit> paired(const RunSummary& first, const RunSummary& second) {
  check_texts(first);
  check_texts(second);
  std::vector<PairedSplit> splits;
  for (const Evaluation& a : first.results) {
    const auto b = std::ranges::find(second.results, a.split, &Evaluation::split);
    if (!a.text || b == second.results.end() || !b->text) continue;
    const auto same = [&](std::string_view what, const auto& ours, const auto& theirs) {
      check(ours == theirs, "paired", a.split, ": the ", what, " is ", ours, " in '", printable(first.path), "' and ",
            theirs, " in '", printable(second.path), "'");
    };
    same("tokenizer's checksum", a.text->tokenizer_checksum, b->text->tokenizer_checksum);
    same("tokens' checksum", a.text->token_checksum, b->text->token_checksum);
    same("context", a.text->context, b->text->context);
    same("stride", a.text->stride, b->text->stride);
    splits.push_back({a.split, *a.text, a.loss, b->loss, paired_difference(a.blocks, b->blocks), a.blocks.nats.size()});
  }
  check(!splits.empty(), "paired", "'", printable(first.path), "' and '", printable(second.path),
        "' were evaluated on no split in common");
  return splits;
}

bool PairedSplit::differs() const {
  if (difference.error == 0) return difference.mean != 0;
  return student_p(difference.mean / difference.error, static_cast<double>(parts - 1)) < test_level;
}

std::string paired_text(const RunSummary& first, const RunSummary& second, const std::vector<PairedSplit>& splits) {
  TableRows rows{{"split", "A", "B", "A - B", "differs", "tokens", "parts", "context", "stride"}};
  for (const PairedSplit& s : splits) {
    rows.push_back({s.split, short_number(s.first), short_number(s.second),
                    concat(short_number(s.difference.mean), " +- ", short_number(s.difference.error, 2)),
                    s.differs() ? "yes" : "no", with_commas(s.text.tokens),
                    with_commas(static_cast<std::int64_t>(s.parts)), to_text(s.text.context), to_text(s.text.stride)});
  }
  const auto name = [](const RunSummary& run) { return concat(printable(run.path), " (", run.config.label(), ")"); };
  return concat(
      "Nats per token at the end; the difference on the same tokens with its standard error over the parts of "
      "the text,\nwhich covers no difference between seeds. It differs from 0 if Student's t test says so at the 5% "
      "level.\n\n"
      "A: ",
      name(first), "\nB: ", name(second), "\n\n", markdown_table(rows));
}

JsonValue paired_json(const RunSummary& first, const RunSummary& second, const std::vector<PairedSplit>& splits) {
  JsonValue all = JsonValue::array();
  for (const PairedSplit& s : splits) {
    all.push(JsonValue::object({{"split", s.split},
                                {"a", s.first},
                                {"b", s.second},
                                {"difference", s.difference.mean},
                                {"error", s.difference.error},
                                {"tokens", s.text.tokens},
                                {"parts", static_cast<std::int64_t>(s.parts)},
                                {"context", s.text.context},
                                {"stride", s.text.stride}}));
  }
  return JsonValue::object({{"a", first.path}, {"b", second.path}, {"paired", std::move(all)}});
}

}  // namespace tally

// A reproduced table as Markdown and as JSON.
#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "tasks/evaluation/text_counts.hpp"
#include "tasks/results/reproduction.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

// "6.8 (6.9)", as printed in the paper.
ResultCell printed_cell(const std::optional<Printed>& printed) {
  if (!printed) return {"", JsonValue()};
  JsonValue json = JsonValue::object({{"mean", printed->mean}});
  if (!printed->has_spread()) return {to_text(printed->mean), std::move(json)};
  json.set("deviation", printed->deviation);
  return {formatted("{} ({})", to_text(printed->mean), to_text(printed->deviation)), std::move(json)};
}

// Marks a number that differs from a printed one without a deviation.
constexpr std::string_view exact_mark = "\u2021";

bool has_spread(const Reproduced::Cell& cell) { return cell.printed && cell.printed->has_spread(); }

// "4.9% (4.4)*", with the number of runs if some are missing.
ResultCell measured_cell(const Reproduced::Cell& cell, std::size_t seeds) {
  const std::size_t n = cell.results.size();
  if (n == 0) return {"-", JsonValue()};
  ResultCell shown = result_cell(cell.results, cell.sequences);
  if (!cell.of_text()) shown.json.set("counts", cell.sequences ? "sequences" : "tokens");
  if (cell.untrained) shown.mark(untrained_mark, "untrained_rows");
  if (cell.comparable()) shown.json.set("differs", cell.differs());
  if (cell.differs()) shown.text += has_spread(cell) ? "*" : exact_mark;
  if (n < seeds) shown.text += formatted(" of {}", n);
  return shown;
}

bool any_printed(const Reproduced& result, std::size_t column) {
  return std::ranges::any_of(result.cells, [&](const auto& row) { return row[column].printed.has_value(); });
}

// "paper", or "paper, Wikitext-103: perplexity" for a column with printed numbers only.
std::string printed_title(const ReproductionColumn& column, Scale scale) {
  const std::string title = column.task.empty() ? column.title.at(scale) : "paper";
  return column.unit.empty() ? title : formatted("{}: {}", title, column.unit);
}

// Explains the numbers and marks of the table.
std::vector<std::string> legend_notes(const Reproduced& result) {
  const std::size_t seeds = result.setting.seeds.size();
  bool any_different = false, any_from_exact = false, any_untrained = false, any_alone = false;
  for (const auto& row : result.cells) {
    for (const Reproduced::Cell& cell : row) {
      (has_spread(cell) ? any_different : any_from_exact) |= cell.differs();
      any_untrained |= cell.untrained;
      any_alone |= cell.printed && cell.results.size() == 1;
    }
  }
  const auto of_text = [](const ReproductionColumn& column) { return column.text != nullptr; };
  const auto measured = [](const ReproductionColumn& column) { return !column.task.empty(); };
  const std::vector<ReproductionColumn>& columns = result.table->columns;
  const bool errors = std::ranges::count_if(columns, measured) > std::ranges::count_if(columns, of_text);
  const bool texts = std::ranges::any_of(columns, of_text);
  const auto at_end = [](const ReproductionColumn& column) { return column.share >= 1; };
  const std::string wrong =
      formatted("Wrong answers{}, in percent", std::ranges::all_of(columns, at_end) ? " at the end" : "");
  std::string text =
      formatted("{}{}{}: mean over {}{}", errors ? wrong : "", errors && texts ? "; of texts " : "",
                texts ? "perplexity of a token" : "", seeds, seeds == 1 ? " seed" : " seeds (standard deviation)");
  if (texts) text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  const std::string level = formatted(" at the 5% level (Welch's t test over seeds, three in print){}",
                                      errors ? " and is outside the 95% interval of the counts" : "");
  if (any_different) text += formatted("; * differs from the paper's number{}", level);
  if (any_from_exact) {
    text +=
        formatted("; {} the paper prints no deviation: differs from its number, taken as exact,{}", exact_mark, level);
  }
  if (any_alone) text += "; no mark for what differs where there is one seed, which tells nothing of the spread";
  std::vector<std::string> notes{text};
  if (any_untrained) notes.push_back(formatted("{} {}", untrained_mark, untrained_note));
  for (std::size_t c = 0; c < result.table->columns.size(); ++c) {
    const ReproductionColumn& column = result.table->columns[c];
    if (column.unit.empty() || !any_printed(result, c)) continue;
    notes.push_back(formatted(
        "The column '{}' has no wrong answers: it is what the paper prints, and nothing of it is measured here",
        printed_title(column, result.setting.scale)));
  }
  return notes;
}

// The token counts of each column's perplexities, which may differ between its rows.
std::vector<std::string> text_counts_notes(const Reproduced& result) {
  std::string text;
  for (std::size_t c = 0; c < result.table->columns.size(); ++c) {
    const ReproductionColumn& column = result.table->columns[c];
    std::set<std::string> told;
    for (const auto& row : result.cells) {
      if (!row[c].of_text()) continue;
      const std::string counts = text_counts_text(*row[c].results.back().text);
      if (!told.insert(counts).second) continue;
      text += formatted("\n- {}, split {}: {}", column.title.at(result.setting.scale), column.split, counts);
    }
  }
  if (text.empty()) return {};
  return {"Perplexities are over:\n" + text};
}

ResultTable table_of(const Reproduced& result) {
  const Reproduction& table = *result.table;
  const Scale scale = result.setting.scale;
  ResultTable shown{"", {{"", "row"}}};
  for (const ReproductionRow& row : table.rows) shown.rows.push_back({row.label});
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const ReproductionColumn& column = table.columns[c];
    const std::string& title = column.title.at(scale);
    const bool printed = any_printed(result, c);
    if (!column.task.empty()) shown.columns.push_back({title});
    if (printed) shown.columns.push_back({printed_title(column, scale), title + ", printed"});
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const Reproduced::Cell& cell = result.cells[r][c];
      if (!column.task.empty()) shown.rows[r].push_back(measured_cell(cell, result.setting.seeds.size()));
      if (printed) shown.rows[r].push_back(printed_cell(cell.printed));
    }
  }
  for (const auto& notes : {legend_notes(result), text_counts_notes(result)}) {
    shown.notes.insert(shown.notes.end(), notes.begin(), notes.end());
  }
  return shown;
}

ResultTable choices_of(const Reproduction& table, Scale scale) {
  ResultTable shown{"", {{"left open", "what"}, {"chosen"}, {"source or reason", "why"}}};
  for (const OpenChoice& choice : table.choices) {
    shown.rows.push_back({choice.what.at(scale), choice.chosen.at(scale), choice.why.at(scale)});
  }
  return shown;
}

}  // namespace

std::string reproduced_text(const Reproduced& result) {
  const Reproduction& table = *result.table;
  std::string text = formatted("{}\n\nPrinted: {}\n", table.title, table.source);
  if (!table.note.empty()) text += table.note + "\n";
  text += result.setting.scale == Scale::paper
              ? "Scale: paper, the published setting; what that leaves open is chosen as listed below."
          : table.published ? "Scale: quick, a REDUCED setting: orders can be compared with the paper, numbers cannot."
                            : "Scale: quick, a setting of ours: no paper trains models on it.";
  if (!result.setting.changes.empty()) text += formatted(" CHANGED: {}.", result.setting.changes);
  text += "\n\n" + table_of(result).text();
  if (!table.choices.empty()) text += choices_of(table, result.setting.scale).text();
  std::string states;
  for (const auto& [state, count] : result.runs) {
    states += formatted("{}{} {}", states.empty() ? "" : ", ", count, name_of(state));
  }
  text += formatted("Runs: {}\n", states);
  for (const std::string& problem : result.problems) text += formatted("not read: {}\n", problem);
  return text;
}

std::string presets_text(const Reproduction& table, Scale scale) {
  std::string text;
  std::set<std::string> told;
  for (const ReproductionColumn& column : table.columns) {
    const std::string own = preset_of(column, scale);
    if (column.task.empty() || !told.insert(formatted("{} {}", column.task, own)).second) continue;
    const PresetEntry& preset = find_preset(column.task, own);
    text += formatted("- {}, preset {}: {}:", preset.task, preset.name, preset.summary);
    for (const auto& [name, value] : preset.settings) text += formatted(" {}={}", name, value);
    text += "\n";
    if (!preset.source.empty()) text += formatted("  Source: {}\n", preset.source);
    if (!preset.note.empty()) text += formatted("  {}\n", preset.note);
  }
  return text;
}

JsonValue reproduced_json(const Reproduced& result) {
  const Reproduction& table = *result.table;
  const Scale scale = result.setting.scale;
  JsonValue states = JsonValue::object(), problems = JsonValue::array();
  for (const auto& [state, count] : result.runs) states.set(name_of(state), count);
  for (const std::string& problem : result.problems) problems.push(problem);
  return JsonValue::object({{"name", table.name},
                            {"title", table.title},
                            {"source", table.source},
                            {"note", table.note},
                            {"scale", name_of(scale)},
                            {"seeds", result.setting.seeds.size()},
                            {"changes", result.setting.changes},
                            {"rows", table_of(result).rows_json()},
                            {"choices", choices_of(table, scale).rows_json()},
                            {"states", std::move(states)},
                            {"problems", std::move(problems)}});
}

}  // namespace tally

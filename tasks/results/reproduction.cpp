// Maps a table to its runs, and runs to their measurements.
#include "tasks/results/reproduction.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "nn/options.hpp"
#include "tasks/evaluation/error_rates.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/runs/files.hpp"
#include "tasks/runs/model_shapes.hpp"
#include "tasks/runs/preset.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {
namespace {

// The settings of a run are known before its folder exists.
class Runs {
 public:
  Runs(const std::string& folder, Reproduced& result) : folder_(folder), result_(result) {}

  // The run, read at most once. Null if it does not exist or cannot be read.
  const RunSummary* find(const ReproductionRun& run) {
    const auto known = runs_.find(run.name);
    if (known != runs_.end()) return known->second ? &*known->second : nullptr;
    std::optional<RunSummary>& read = runs_[run.name];
    const std::string path = folder_ + "/" + run.name;
    RunState state = RunState::waiting;
    if (has_config(path)) {
      try {
        read = read_run(path);
        const std::vector<std::string> other = differences(read->config, run.config);
        check(other.empty(), "reproduce", "{} holds a run with other settings: {}", path,
              other.empty() ? "" : other[0]);
        state = read->state;
        result_.paths.push_back(path);
        if (state == RunState::finished) result_.seconds += read->seconds;
      } catch (const Error& why) {
        result_.problems.push_back(why.what());
        read.reset();
        state = RunState::failed;
      }
    }
    ++result_.runs[state];
    return read ? &*read : nullptr;
  }

 private:
  const std::string& folder_;
  Reproduced& result_;
  std::map<std::string, std::optional<RunSummary>> runs_;
};

// The evaluation for a cell: at the end, or at the context of the column.
std::optional<Evaluation> evaluation_of(const RunSummary& run, const ReproductionColumn& column,
                                        const std::optional<VariedQuestion>& context) {
  if (run.state != RunState::finished) return std::nullopt;
  if (context) {
    const VariedFile file(run.path);
    const Evaluation* found = file.find(context->key(run.config.run.steps));
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (column.share >= 1) {
    const std::vector<Evaluation>& results = column.generated ? run.generated : run.results;
    const auto found = std::ranges::find(results, column.split, &Evaluation::split);
    return found == results.end() ? std::nullopt : std::optional(*found);
  }
  const auto step = static_cast<std::int64_t>(std::llround(column.share * static_cast<double>(run.config.run.steps)));
  for (const Measurement& m : run.measurements) {
    if (m.step == step && m.evaluation.split == column.split) return m.evaluation;
  }
  return std::nullopt;
}

// Throws Error for a split that the task does not have. Splits of tasks that read files are known only after the files
// are opened.
void check_split(const Reproduction& table, const ReproductionColumn& column, const ReproductionSetting& setting) {
  const std::optional<ReproductionRun> run = run_of(table, table.rows.front(), column, setting, setting.seeds.front());
  if (!run || run->config.task->reads_files) return;
  in_file(formatted("{}, {}", table.name, column.title.at(setting.scale)),
          [&] { run->config.make_task()->split(column.split); });
}

}  // namespace

std::string_view name_of(Scale scale) { return scale == Scale::quick ? "quick" : "paper"; }

std::string reproduction_names() {
  std::string names;
  for (const Reproduction& table : reproduction_registry()) {
    names += (names.empty() ? "" : ", ") + table.name;
    for (const std::string& alias : table.aliases) names += ", " + alias;
  }
  return names;
}

const Reproduction& find_reproduction(std::string_view name) {
  std::vector<std::string> names;
  for (const Reproduction& table : reproduction_registry()) {
    if (table.name == name || std::ranges::count(table.aliases, name) > 0) return table;
    names.push_back(table.name);
    names.insert(names.end(), table.aliases.begin(), table.aliases.end());
  }
  const std::string nearest = nearest_name(name, names);
  fail("reproduce", "there is no table or figure '{}'; {}there are {}", name,
       nearest.empty() ? "" : formatted("did you mean '{}'? ", nearest), reproduction_names());
}

Reproduction part_of(const Reproduction& table, const std::vector<std::string>& rows,
                     const std::vector<std::string>& tasks) {
  const auto check_names = [&](std::string_view what, const std::vector<std::string>& asked,
                               const std::vector<std::string>& all) {
    for (const std::string& name : asked) {
      const std::string nearest = nearest_name(name, all);
      check(std::ranges::count(all, name) > 0, "reproduce", "{} has no {} '{}'{}", table.name, what, name,
            nearest.empty() ? "" : formatted("; did you mean '{}'?", nearest));
    }
  };
  std::vector<std::string> labels, all_tasks;
  for (const ReproductionRow& row : table.rows) labels.push_back(row.label);
  for (const ReproductionColumn& column : table.columns) {
    if (!column.task.empty()) all_tasks.push_back(column.task);
  }
  check_names("row", rows, labels);
  check_names("column of the task", tasks, all_tasks);

  Reproduction part = table;
  if (!tasks.empty()) part.title += formatted(" (tasks: {})", joined(tasks));
  if (!rows.empty()) part.title += formatted(" (rows: {})", joined(rows, "; "));
  const auto is_wanted = [](const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::ranges::count(names, name) > 0;
  };
  part.columns.clear();
  for (ReproductionRow& row : part.rows) row.printed.clear();
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (!is_wanted(tasks, table.columns[c].task)) continue;
    part.columns.push_back(table.columns[c]);
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const std::vector<Printed>& printed = table.rows[r].printed;
      part.rows[r].printed.push_back(c < printed.size() ? printed[c] : Printed{});
    }
  }
  std::erase_if(part.rows, [&](const ReproductionRow& row) { return !is_wanted(rows, row.label); });
  return part;
}

std::string preset_of(const ReproductionColumn& column, Scale scale) {
  if (!column.preset.at(scale).empty()) return column.preset.at(scale);
  return column.text == nullptr ? std::string(name_of(scale)) : column.text->preset.at(scale);
}

std::optional<VariedQuestion> context_of(const Reproduction& table, const ReproductionRow& row,
                                         const ReproductionColumn& column, Scale scale) {
  const auto length_of = [&](const ReproductionColumn& any) {
    return std::int64_t{std::llround(any.context.at(scale))};
  };
  if (length_of(column) == 0) return std::nullopt;
  std::vector<std::int64_t> lengths;
  for (const ReproductionColumn& other : table.columns) {
    if (other.text == column.text && length_of(other) > 0) lengths.push_back(length_of(other));
  }
  VariedQuestion question{"task.length", to_text(length_of(column)), column.split, same_targets(lengths)};
  std::istringstream words(row.beyond.at(scale));
  for (std::string word; words >> word;) question.changes.push_back(word);
  return question;
}

std::optional<ReproductionRun> run_of(const Reproduction& table, const ReproductionRow& row,
                                      const ReproductionColumn& column, const ReproductionSetting& setting,
                                      std::int64_t seed) {
  if (column.task.empty()) return std::nullopt;
  return in_file(formatted("{}, {}, {}", table.name, row.label, column.title.at(setting.scale)), [&] {
    const Scale scale = setting.scale;
    const std::string preset = preset_of(column, scale);
    RunConfig config = RunConfig::make(column.task, row.encoding.at(scale), preset);
    if (column.text != nullptr) config.set("task.data", column.text->data.at(scale));
    const Settings settings = parse_settings(
        "reproduce", formatted("{} {} {}", row.settings.at(scale), column.settings.at(scale), setting.changes));
    for (const auto& [key, value] : settings) {
      check(key != "seed", "reproduce", "seeds are given with --seeds");
      config.set(key, value);
    }
    config.run.seed = seed;
    config.shorten_warmup();
    config.validate();
    config.refuse_idle();
    const std::string folder = formatted("{}{}", column.task, preset == name_of(scale) ? "" : "-" + preset);
    std::string name = formatted("{}/{}", folder, run_name(config.encoding.text(), settings, seed));
    return std::optional(ReproductionRun{std::move(name), std::move(config)});
  });
}

std::vector<ReproductionRun> runs_of(const Reproduction& table, const ReproductionSetting& setting) {
  check(table.published || setting.scale == Scale::quick, "reproduce",
        "{} has no scale paper: no paper trains models on it", table.name);
  for (const ReproductionColumn& column : table.columns) check_split(table, column, setting);
  std::vector<ReproductionRun> runs;
  for (const std::int64_t seed : setting.seeds) {
    for (const ReproductionRow& row : table.rows) {
      for (const ReproductionColumn& column : table.columns) {
        std::optional<ReproductionRun> run = run_of(table, row, column, setting, seed);
        const auto same = [&](const ReproductionRun& other) { return other.name == run->name; };
        if (run && std::ranges::none_of(runs, same)) runs.push_back(std::move(*run));
      }
    }
  }
  return runs;
}

Reproduced reproduced(const Reproduction& table, const ReproductionSetting& setting, const std::string& folder) {
  Reproduced result{.table = &table, .setting = setting};
  Runs runs(folder, result);
  for (const ReproductionRow& row : table.rows) {
    std::vector<Reproduced::Cell>& cells = result.cells.emplace_back();
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const ReproductionColumn& column = table.columns[c];
      Reproduced::Cell& cell = cells.emplace_back();
      if (c < row.printed.size() && row.printed[c].stated()) cell.printed = row.printed[c];
      for (const std::int64_t seed : setting.seeds) {
        const std::optional<ReproductionRun> run = run_of(table, row, column, setting, seed);
        if (!run) continue;
        const RunSummary* summary = runs.find(*run);
        if (summary == nullptr) continue;
        std::optional<Evaluation> e;
        try {
          e = evaluation_of(*summary, column, context_of(table, row, column, setting.scale));
        } catch (const Error& why) {  // damaged evaluations of one run do not affect the rest of the table
          if (std::ranges::count(result.problems, why.what()) == 0) result.problems.emplace_back(why.what());
        }
        if (!e) continue;
        if (!e->text && cell.results.empty()) {
          const std::unique_ptr<Task> task = summary->config.make_task();
          cell.sequences = task->scores_sequences();
          cell.untrained = reaches_untrained_rows(summary->config, *task, task->split(column.split));
        }
        cell.results.push_back(std::move(*e));
      }
    }
  }
  return result;
}

std::vector<double> Reproduced::Cell::values() const {
  if (!of_text()) return error_rates(results, sequences).rates;
  std::vector<double> perplexities;
  for (const Evaluation& e : results) perplexities.push_back(e.perplexity());
  return perplexities;
}

bool Reproduced::Cell::comparable() const { return printed && results.size() >= 2; }

bool Reproduced::Cell::differs() const {
  if (!comparable()) return false;
  const MeanDeviation measured = mean_deviation(values());
  if (!std::isfinite(measured.mean)) return true;
  const MeanDeviation theirs = printed->over_seeds(of_text() ? 1 : 0.01);  // printed errors are in percent
  const bool beyond_spread = welch_p(measured, theirs) < test_level;
  if (of_text()) return beyond_spread;
  const ErrorRates errors = error_rates(results, sequences);
  const Interval counts = wilson_interval(errors.wrong, errors.of);
  return beyond_spread && (theirs.mean < counts.low || theirs.mean > counts.high);
}

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

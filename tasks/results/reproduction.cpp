// Maps a table to its runs, and runs to their measurements.
#include "tasks/results/reproduction.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "core/error.hpp"
#include "nn/options.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/runs/data_file.hpp"
#include "tasks/runs/model_shapes.hpp"
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
    std::error_code error;
    RunState state = RunState::waiting;
    if (std::filesystem::exists(path + "/config.json", error)) {
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
                                        const std::optional<ContextQuestion>& context) {
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

VariedKey ContextQuestion::key(std::int64_t step) const {
  return {step, "task.length", value, split, changes_text(beside, changes)};
}

std::optional<ContextQuestion> context_of(const Reproduction& table, const ReproductionRow& row,
                                          const ReproductionColumn& column, Scale scale) {
  const auto length_of = [&](const ReproductionColumn& any) {
    return std::int64_t{std::llround(any.context.at(scale))};
  };
  if (length_of(column) == 0) return std::nullopt;
  std::vector<std::int64_t> lengths;
  for (const ReproductionColumn& other : table.columns) {
    if (other.text == column.text && length_of(other) > 0) lengths.push_back(length_of(other));
  }
  ContextQuestion question{to_text(length_of(column)), column.split, same_targets(lengths)};
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

}  // namespace tally

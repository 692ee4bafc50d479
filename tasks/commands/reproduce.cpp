// tally reproduce: reproduces a table or figure of a paper, from training the runs to a page that compares them with
// the printed numbers. Finished runs are skipped. A stopped or killed reproduction resumes and ends with the same
// table.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/command_line/training.hpp"
#include "tasks/commands/parts/evaluate_over.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/results/reproduction.hpp"
#include "tasks/runs/files.hpp"
#include "tasks/runs/machine.hpp"
#include "tasks/sweep/run_plan.hpp"

namespace tally {
namespace {

constexpr const char* reading_name = "reading.md";

std::string today() {
  char day[11] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &utc));
  return day;
}

// A link to the discussion of the results next to the page, or nothing.
std::string reading_text(const std::string& path) {
  return path_exists(std::filesystem::path(path).parent_path() / reading_name)
             ? formatted("Agreement with the paper: [{}]({})\n\n", reading_name, reading_name)
             : "";
}

// The origin of the table, then every run with its counts and machine. Links to a file reading.md next to the page.
// command: the command that makes the page. picture: a file next to it; may be empty. work: the runs that were trained.
std::string page_text(const Reproduced& result, const std::string& path, const std::string& command,
                      const std::string& picture, const std::string& work) {
  std::string text = formatted("# {}\n{}", reproduced_text(result), reading_text(path));
  if (!picture.empty()) text += formatted("![{}]({})\n\n", result.table->title, picture);
  text += formatted(
      "```\n{}\n```\n\nWritten on {}. The finished runs trained for {} together, each for itself. This call: {}, on "
      "{}.\n\n## The "
      "settings\n\n{}\n## The runs\n\n",
      command, today(), duration_text(result.seconds), work, printable(Machine::here().text()),
      presets_text(*result.table, result.setting.scale));
  return result.paths.empty() ? text : text + report_text(make_report(result.paths));
}

struct ReproduceSettings {
  std::string name, scale = "quick", folder, seeds = "1..3", out;
  std::vector<std::string> rows, tasks, changes;
  std::int64_t jobs = 0;
  bool dry_run = false;
};

// The command that reproduces this table in any folder.
std::string command_of(const ReproduceSettings& settings, const CommonOptions& common) {
  std::vector<std::string> words{"tally",        "reproduce", settings.name, "--scale",
                                 settings.scale, "--seeds",   settings.seeds};
  const auto add = [&](const char* option, const std::vector<std::string>& values) {
    for (const std::string& value : values) words.insert(words.end(), {option, value});
  };
  add("--set", settings.changes);
  add("--rows", settings.rows);
  add("--tasks", settings.tasks);
  if (!settings.folder.empty()) add("--dir", {settings.folder});
  if (common.precision != CommonOptions().precision) add("--precision", {common.precision});
  for (std::string& word : words) word = shell_word(word);
  return joined(words, " ");
}

// The labels in texts with commas between them. A text that is a label is not divided: "relative, capped".
std::vector<std::string> labels_in(const std::vector<std::string>& labels, const std::vector<std::string>& texts) {
  std::vector<std::string> found;
  for (const std::string& text : texts) {
    if (std::ranges::count(labels, text) > 0) {
      found.push_back(text);
    } else {
      std::ranges::copy(split_text(text, ','), std::back_inserter(found));
    }
  }
  return found;
}

// Throws UsageError if a text that unfinished runs need is missing, with the command that prepares it.
void check_texts(const Reproduction& table, const ReproductionSetting& setting, const std::string& folder) {
  for (const ReproductionColumn& column : table.columns) {
    if (column.text == nullptr) continue;
    const std::string data = settings_of(run_of(table, table.rows.front(), column, setting, 1)->config).at("task.data");
    if (path_exists(data)) continue;
    for (const ReproductionRow& row : table.rows) {
      for (const std::int64_t seed : setting.seeds) {
        const std::string run = run_of(table, row, column, setting, seed)->name;
        if (path_exists(formatted("{}/{}/results.json", folder, run))) continue;
        throw UsageError(formatted("[reproduce] there is no {}, which {} trains on; it is made by: {}", data,
                                   table.name, column.text->made_by.at(setting.scale)));
      }
    }
  }
}

// Evaluates a finished run at a context of the table, and stores the result with the run, unless it is stored already.
// Returns false if the run cannot be evaluated there.
bool evaluate_context(const std::string& path, std::int64_t steps, const VariedQuestion& question,
                      const CommonOptions& common) {
  const std::atomic<bool>& stop = watch_signals();
  if (stop.load() || !has_config(path)) return true;
  try {
    const RunSummary run = read_run(path);
    VariedKey key = question.key(steps);
    if (run.state != RunState::finished || VariedFile(path).find(key) != nullptr) return true;
    VariedRun work(run, common, stop);
    std::string refusal;
    const std::optional<Evaluation> found = work.evaluate(question, refusal);
    if (!found) return refusal.empty();
    key.step = work.step();
    VariedFile(path).add(key, *found);
    return true;
  } catch (const Error& why) {  // of one run; the others are still evaluated
    complain(formatted("{}: {}", path, why.what()));
    return false;
  }
}

// Evaluates all runs at the contexts of the table, grouped by run. Returns whether all of them could be evaluated.
bool evaluate_contexts(const Reproduction& table, const ReproductionSetting& setting, const std::string& folder,
                       const CommonOptions& common) {
  bool all = true;
  for (const std::int64_t seed : setting.seeds) {
    for (const ReproductionRow& row : table.rows) {
      for (const ReproductionColumn& column : table.columns) {
        const std::optional<VariedQuestion> question = context_of(table, row, column, setting.scale);
        if (!question) continue;
        const ReproductionRun run = *run_of(table, row, column, setting, seed);
        all &= evaluate_context(formatted("{}/{}", folder, run.name), run.config.run.steps, *question, common);
      }
    }
  }
  return all;
}

Result run_reproduce(const ReproduceSettings& settings, const CommonOptions& common) {
  const Reproduction table = as_usage([&] {
    const Reproduction& whole = find_reproduction(settings.name);
    std::vector<std::string> labels, tasks;
    for (const ReproductionRow& row : whole.rows) labels.push_back(row.label);
    for (const ReproductionColumn& column : whole.columns) tasks.push_back(column.task);
    return part_of(whole, labels_in(labels, settings.rows), labels_in(tasks, settings.tasks));
  });
  const ReproductionSetting setting{settings.scale == "paper" ? Scale::paper : Scale::quick,
                                    parse_seeds(settings.seeds), joined(settings.changes, " ")};
  const std::string folder = settings.folder.empty() ? "runs/" + settings.scale : settings.folder;
  if (!settings.out.empty()) {
    known_ending(settings.out, {".md"});
    check_output(settings.out);
  }
  std::vector<PlannedRun> runs;
  as_usage([&] {
    for (ReproductionRun& run : runs_of(table, setting)) runs.push_back({std::move(run.name), std::move(run.config)});
    check_texts(table, setting, folder);
  });
  RunPlan plan(folder, std::move(runs), common);
  plan.take_stock();
  const std::int64_t jobs = plan.jobs(settings.jobs);
  tally::say(common, formatted("{}, scale {}: {}", printable(folder), settings.scale, plan.left_text(jobs)));
  if (settings.dry_run) {
    Result result = plan.overview(jobs);
    result.value.set("scale", settings.scale);
    return result;
  }
  plan.execute(jobs);
  const bool contexts = evaluate_contexts(table, setting, folder, common);
  const Reproduced result = reproduced(table, setting, folder);
  JsonValue json = reproduced_json(result);
  json.set("folder", folder);
  if (!settings.out.empty()) {
    std::string picture;
    if (table.curves && !result.paths.empty()) {
      const std::string path = settings.out.substr(0, settings.out.size() - 3) + ".svg";
      write_file_atomically(path, svg_text(report_chart(make_report(result.paths))));
      picture = path.substr(path.rfind('/') + 1);
      json.set("picture", path);
    }
    write_file_atomically(settings.out,
                          page_text(result, settings.out, command_of(settings, common), picture, plan.work_text()));
    json.set("page", settings.out);
    say(common, formatted("page: {}", printable(settings.out)));
  }
  const int code = plan.code();
  return {code == exit_code::done && !contexts ? exit_code::failed : code, std::move(json),
          formatted("\n{}{}", reproduced_text(result), plan.states_text())};
}

// The tables that train on a text, which takes hours per model.
std::string names_of_texts() {
  std::vector<std::string> names;
  for (const Reproduction& table : reproduction_registry()) {
    const auto is_text = [](const ReproductionColumn& column) { return column.text != nullptr; };
    if (std::ranges::any_of(table.columns, is_text)) names.push_back(table.name);
  }
  return joined(names);
}

}  // namespace

std::function<Result()> declare_reproduce(CommandLine& line) {
  const auto settings = std::make_shared<ReproduceSettings>();
  line.add("NAME", &settings->name, formatted("table or figure: {}", reproduction_names()), {.required = true});
  line.add("--scale", &settings->scale,
           formatted("paper: the published setting; quick: reduced, less than two hours a table on two cores but for "
                     "'encodings' and language models: {}",
                     names_of_texts()),
           {.allowed = {"quick", "paper"}});
  line.add("--dir", &settings->folder, "folder of the runs; default: runs/<scale>, shared by all tables");
  line.add("--seeds", &settings->seeds, "1..3, or 1,2,5");
  line.add("--rows", &settings->rows,
           "only the rows with these labels: cope,rope; may be repeated, for labels with commas");
  line.add("--tasks", &settings->tasks, "only the columns of these tasks: flip-flop,group-word");
  line.add("--set", &settings->changes, "key=value: change a setting of every run; may be repeated");
  line.add("--jobs", &settings->jobs, "parallel runs, which share the cores; 0: one per core if memory suffices",
           {.least = 0, .most = 1024});
  line.add("--out", &settings->out, "page to write, .md; a figure's learning curves are written next to it, .svg");
  line.add("--dry-run", &settings->dry_run, "print the runs, their states and the time left, then stop",
           {.excludes = {"--out"}});
  return [settings, &common = line.common] { return run_reproduce(*settings, common); };
}

}  // namespace tally

// tally reproduce: a table or figure of a paper, from its runs to the page that shows them beside the printed numbers.
// What is finished is skipped; stopped or killed at any moment, it goes on where it was and ends with the same table.
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>

#include "core/cpu/parallel.hpp"
#include "core/io/atomic_file.hpp"
#include "tasks/machine.hpp"
#include "tasks/model_record.hpp"
#include "tasks/printable.hpp"
#include "tasks/reproduction.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/grid.hpp"
#include "tasks/runner/output_file.hpp"
#include "tasks/runner/progress.hpp"
#include "tasks/runner/run_cost.hpp"
#include "tasks/runner/run_plan.hpp"
#include "tasks/runner/signals.hpp"
#include "tasks/runner/varied_run.hpp"

namespace tally {
namespace {

struct ReproduceSettings {
  std::string name, scale = "quick", folder, seeds = "1..3", out, rows, tasks;
  std::vector<std::string> changes;
  std::int64_t jobs = 0;
  bool dry_run = false, show = false, cost = false;
};

// Everything that anyone needs to judge the table: how it came about, then every run with counts and machine.
// work: what this call trained; empty where it only shows what is there.
std::string page_text(const Reproduced& result, const ReproduceSettings& settings, const std::string& picture,
                      const std::string& work) {
  char day[11] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &utc));
  std::string text = concat("# ", reproduced_text(result), "\n");
  if (!picture.empty()) text += concat("![", result.table->title, "](", picture, ")\n\n");
  std::string changes;
  for (const std::string& change : settings.changes) changes += " --set " + change;
  if (!settings.rows.empty()) changes += " --rows '" + settings.rows + "'";
  if (!settings.tasks.empty()) changes += " --tasks " + settings.tasks;
  text +=
      concat("```\ntally reproduce ", result.table->name, " --scale ", settings.scale, " --seeds ", settings.seeds,
             changes, "\n```\n\nWritten on ", day, ". The finished runs trained for ", duration_text(result.seconds),
             " together, each for itself. ", work.empty() ? "Nothing was trained by this call" : "This call: " + work,
             ", on ", printable(Machine::here().text()), ".\n\n## The settings\n\n",
             presets_text(*result.table, result.setting.scale), "\n## The runs\n\n");
  return result.paths.empty() ? text : text + report_text(make_report(result.paths));
}

// Throws UsageError that says how to make a text that a table needs and that is not there.
void check_texts(const Reproduction& table, const ReproductionSetting& setting) {
  for (const ReproductionColumn& column : table.columns) {
    if (column.text == nullptr) continue;
    const std::optional<ReproductionRun> run = run_of(table, table.rows.front(), column, setting, 1);
    const std::string data = settings_of(run->config).at("task.data");
    std::error_code error;
    if (std::filesystem::exists(data, error)) continue;
    throw UsageError(concat("[reproduce] there is no ", data, ", which ", table.name,
                            " trains on; it is made by: ", column.text->made_by.at(setting.scale)));
  }
}

// Evaluates the finished runs at the contexts that the table asks for, each model loaded once. What was found is kept
// beside the runs. Whether every context was taken.
bool evaluate_contexts(const Reproduction& table, const ReproductionSetting& setting, const std::string& folder,
                       const CommonOptions& common) {
  const std::atomic<bool>& stop = watch_signals();
  bool all = true;
  for (const std::int64_t seed : setting.seeds) {
    for (const ReproductionRow& row : table.rows) {
      std::optional<RunSummary> summary;
      std::optional<VariedRun> work;
      for (const ReproductionColumn& column : table.columns) {
        const std::optional<ContextQuestion> context = context_of(table, row, column, setting.scale);
        if (!context || stop.load()) continue;
        const std::string path = concat(folder, "/", run_of(table, row, column, setting, seed)->name);
        std::error_code error;
        if (!std::filesystem::exists(path + "/config.json", error)) continue;
        if (!summary || summary->path != path) {
          work.reset();
          summary = read_run(path);
        }
        if (summary->state != RunState::finished) continue;
        if (!work) work.emplace(*summary, context->changes, common, stop);
        VariedCell found;
        work->evaluate({"task.length", context->value, context->beside, context->split}, found);
        all &= found.refusal.empty();
      }
    }
  }
  return all;
}

std::string left_text(const RunPlan& plan, const std::optional<double>& seconds, std::int64_t jobs) {
  if (plan.count(RunState::finished) == static_cast<std::int64_t>(plan.runs().size())) return "nothing is left";
  if (!seconds) return "how long the others take is known when one has finished, or is measured by --cost";
  return concat("what is left takes about ", duration_text(*seconds), ", ", jobs, " at a time");
}

// What the runs that are left will take, those that differ in the seed alone measured once. As the plan trains them on
// a CPU: with one thread each, as many at a time as there are cores and memory goes.
Result cost_of(const RunPlan& plan, const ReproduceSettings& settings, std::int64_t jobs, const CommonOptions& common) {
  if (common.threads == 0 && default_device().type != DeviceType::cuda) set_thread_count(1);
  std::vector<CostedRuns> costs;
  std::map<std::string, std::size_t> known;  // by configuration without the seed
  for (const PlannedRun& run : plan.runs()) {
    if (run.state == RunState::finished) continue;
    RunConfig config = run.config.clone();
    config.run.seed = 0;
    const auto [entry, is_new] = known.insert({write_json(config.to_json()), costs.size()});
    if (is_new) {
      costs.push_back({run.name, 0, measure_cost(run.config)});
      tally::say(common, concat(printable(run.name), ": measured"));
    }
    ++costs[entry->second].count;
  }
  return {
      exit_code::done, cost_json(costs, jobs).set("scale", settings.scale),
      concat(plan.count(RunState::finished), " of ", plan.runs().size(), " runs of ", settings.name, ", scale ",
             settings.scale, ", are finished. What the others take, from their start, in time of the processor, on ",
             printable(Machine::here().text()), ":\n\n", cost_text(costs, jobs))};
}

// The names between commas.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) parts.push_back(word);
  return parts;
}

Result run_reproduce(const ReproduceSettings& settings, const CommonOptions& common) {
  const Reproduction table = as_usage(
      [&] { return part_of(find_reproduction(settings.name), parts_of(settings.rows), parts_of(settings.tasks)); });
  const ReproductionSetting setting{settings.scale == "paper" ? Scale::paper : Scale::quick,
                                    parse_seeds(settings.seeds), joined(settings.changes, " ")};
  if (settings.dry_run) refuse_with_dry_run("reproduce", "--out", !settings.out.empty());
  if (settings.cost && !settings.out.empty()) throw UsageError("[reproduce] --out has no effect with --cost");
  const std::string folder = settings.folder.empty() ? "runs/" + settings.scale : settings.folder;
  if (!settings.out.empty()) {
    known_ending(settings.out, {".md"});
    check_output(settings.out);
  }
  if (!settings.show) as_usage([&] { check_texts(table, setting); });
  std::vector<PlannedRun> runs;
  std::vector<ReproductionRun> needed = as_usage([&] { return runs_of(table, setting); });
  if (settings.show) needed.clear();  // what is looked at need not fit into this machine's memory
  for (ReproductionRun& run : needed) runs.push_back({std::move(run.name), std::move(run.config)});
  RunPlan plan(folder, std::move(runs), common);
  bool contexts = true;
  if (settings.show) {
    std::error_code error;
    check(std::filesystem::is_directory(folder, error), "reproduce", "there is no folder '", folder, "'");
  } else {
    plan.take_stock();
    const std::int64_t jobs = plan.jobs(settings.jobs);
    const std::optional<double> left = plan.seconds_left(jobs);
    tally::say(common, concat(printable(folder), ", scale ", settings.scale, ": ", plan.count(RunState::finished),
                              " of ", plan.runs().size(), " runs are finished; ", left_text(plan, left, jobs)));
    if (settings.dry_run) {
      Result result;
      JsonValue names = JsonValue::array();
      for (const PlannedRun& run : plan.runs()) {
        names.push(JsonValue::object({{"run", plan.path_of(run)}, {"state", name_of(run.state)}}));
        result.text += concat(printable(plan.path_of(run)), ": ", name_of(run.state), "\n");
      }
      result.value = JsonValue::object({{"scale", settings.scale}, {"runs", std::move(names)}});
      if (left) result.value.set("seconds_left", *left);
      return result;
    }
    if (settings.cost) return cost_of(plan, settings, jobs, common);
    plan.execute(jobs);
    contexts = evaluate_contexts(table, setting, folder, common);
  }
  const Reproduced result = reproduced(table, setting, folder);
  JsonValue json = reproduced_json(result);
  json.set("folder", folder);
  if (!settings.out.empty()) {
    std::string picture;
    if (table.picture != ReproductionPicture::none && !result.paths.empty()) {
      const std::string path = settings.out.substr(0, settings.out.size() - 3) + ".svg";
      write_file_atomically(path, svg_text(reproduced_chart(result)));
      picture = path.substr(path.rfind('/') + 1);
      json.set("picture", path);
    }
    write_file_atomically(settings.out, page_text(result, settings, picture, settings.show ? "" : plan.work_text()));
    json.set("page", settings.out);
    say(common, concat("page: ", printable(settings.out)));
  }
  const int code = !settings.show ? plan.code() : result.problems.empty() ? exit_code::done : exit_code::failed;
  return {code == exit_code::done && !contexts ? exit_code::failed : code, std::move(json),
          concat("\n", reproduced_text(result), settings.show ? "" : plan.states_text())};
}

}  // namespace

std::function<Result()> declare_reproduce(CommandLine& line) {
  const auto settings = std::make_shared<ReproduceSettings>();
  line.add("NAME", &settings->name, concat("table or figure: ", reproduction_names()), {.required = true});
  line.add("--scale", &settings->scale,
           "paper: the published setting; quick: reduced, less than two hours a table on two cores but for 'encodings'",
           {.allowed = {"quick", "paper"}});
  line.add("--dir", &settings->folder, "folder for the runs; runs/<scale>, which all tables share");
  line.add("--seeds", &settings->seeds, "1..3, or 1,2,5");
  line.add("--rows", &settings->rows, "these rows of it alone, by their labels: cope,rope,absolute");
  line.add("--tasks", &settings->tasks, "the columns of these tasks alone: flip-flop,group-word");
  line.add("--set", &settings->changes, "key=value: a change of every run, to try things out; may be given again");
  line.add("--jobs", &settings->jobs, "runs at a time, sharing the cores; 0: one for each core as far as memory goes",
           {.least = 0, .most = 1024});
  line.add("--out", &settings->out, "page to write, .md; a figure's picture goes beside it");
  line.add("--show", &settings->show, "train nothing: show what is there");
  line.add("--dry-run", &settings->dry_run, "name the runs, their states and the time left, and stop",
           {.excludes = {"--show"}});
  line.add("--cost", &settings->cost,
           "measure a few steps and evaluations of each run that is left, say what all take, and stop",
           {.excludes = {"--show", "--dry-run"}});
  return [settings, &common = line.common] { return run_reproduce(*settings, common); };
}

}  // namespace tally

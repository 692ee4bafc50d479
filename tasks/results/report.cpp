// Collects runs and groups them.
#include "tasks/results/report.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/error.hpp"
#include "core/version.hpp"
#include "tasks/print/page.hpp"
#include "tasks/runs/checkpoint.hpp"
#include "tasks/runs/files.hpp"
#include "tasks/runs/model_shapes.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

const JsonLimits sweep_limits{.max_depth = 24, .max_values = 1'000'000};

template <class T>
void add_once(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

// Whether RunFolder::create moved the folder aside: x.old, x.old-2.
bool moved_aside(const std::string& name) {
  const std::string_view tail = std::string_view(name).substr(std::min(name.rfind(".old"), name.size()));
  return tail == ".old" || (tail.starts_with(".old-") && tail.find_first_not_of("0123456789", 5) == tail.npos);
}

class Gatherer {
 public:
  explicit Gatherer(Report& report) : report_(report) {}

  // Collects the runs in a folder and its subfolders. Returns false if there is none.
  bool visit(const std::string& folder) {
    std::error_code error;
    if (has_config(folder) && !is_foreign_model(folder)) {
      if (seen_.insert(fs::canonical(folder, error).string()).second) {
        or_problem(folder, [&] { report_.runs.push_back(read_run(folder)); });
      }
      return true;
    }
    std::set<std::string> below;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.is_directory(error) && !moved_aside(entry.path().filename().string())) below.insert(entry.path());
    }
    bool found = false;
    for (const std::string& path : below) found |= visit(path);
    const std::string sweep = formatted("{}/{}", folder, sweep_file_name);
    if (!path_exists(sweep)) return found;
    or_problem(sweep, [&] { add_sweep(folder, read_sweep_file(sweep)); });
    return true;
  }

 private:
  template <class F>
  void or_problem(const std::string& path, F&& f) {
    try {
      f();
    } catch (const Error& why) {
      report_.problems.push_back(formatted("{}: {}", path, why.what()));
    }
  }

  // Adds the facts that the runs' folders do not have: which runs failed, and which have no folder yet.
  void add_sweep(const std::string& folder, const JsonValue& sweep) {
    for (const JsonValue& run : sweep.elements("runs")) {
      const std::string path = formatted("{}/{}", folder, run.string("name"));
      const RunState state = run_state_from_text(run.string("state"));
      const auto known = std::find_if(report_.runs.begin(), report_.runs.end(),
                                      [&](const RunSummary& summary) { return summary.path == path; });
      if (known != report_.runs.end()) {
        if (known->state == RunState::unfinished && ended_badly(state)) known->state = state;
      } else if (!has_config(path)) {  // else it is among the problems
        RunSummary summary;
        summary.path = path;
        summary.config = RunConfig::from_json(run.at("config"));
        summary.state = state == RunState::failed ? state : RunState::waiting;
        report_.runs.push_back(std::move(summary));
      }
    }
  }

  Report& report_;
  std::set<std::string> seen_;  // a path may be given twice or be inside another
};

ReportTask report_of(const TaskEntry* task, const std::vector<RunSummary>& runs) {
  ReportTask report;
  report.task = task;
  std::map<std::string, std::set<std::string>> values;  // of an option among the runs
  for (const RunSummary& run : runs) {
    if (run.config.task != task) continue;
    if (!task->reads_files) report.scores_sequences = run.config.make_task()->scores_sequences();
    for (const auto& [name, value] : settings_of(run.config)) values[name].insert(value);
    for (const Evaluation& e : run.results) add_once(report.splits, e.split);
    for (const Evaluation& e : run.generated) add_once(report.generated, e.split);
    for (const Measurement& m : run.measurements) add_once(report.splits, m.evaluation.split);
  }
  for (const auto& [name, different] : values) {
    if (different.size() > 1) report.settings.push_back(name);
  }
  for (const RunSummary& run : runs) {
    if (run.config.task != task) continue;
    auto settings = settings_of(run.config);
    std::erase_if(settings, [&](const auto& setting) { return values[setting.first].size() < 2; });
    const auto known = std::find_if(report.groups.begin(), report.groups.end(), [&](const ReportGroup& group) {
      return group.encoding() == run.config.label() && group.settings == settings;
    });
    if (known == report.groups.end()) {
      report.groups.push_back({std::move(settings), {&run}});
    } else {
      known->runs.push_back(&run);
    }
  }
  std::set<std::string> presets;
  for (const ReportGroup& group : report.groups) presets.insert(group.runs.front()->config.preset);
  constexpr std::size_t all_named = 2;
  for (ReportGroup& group : report.groups) {
    if (report.settings.size() > all_named && presets.size() == 1) {
      group.unnamed = settings_of_preset(group.runs.front()->config);
    }
    // The model may be invalid, or its files may be gone.
    if (group.count(RunState::finished) == 0 || task->reads_files) continue;
    const RunConfig& config = group.runs.front()->config;
    const std::unique_ptr<Task> made = config.make_task();
    for (const Split& split : made->splits()) {
      if (reaches_untrained_rows(config, *made, split)) group.untrained.insert(split.name);
    }
  }
  return report;
}

}  // namespace

RunSummary read_run(const std::string& path) {
  const RunFolder folder = RunFolder::open(path);
  const std::vector<MetricsRecord> metrics = read_metrics(folder.metrics_path());
  RunSummary summary;
  summary.path = folder.path();
  summary.config = folder.config().clone();
  summary.measurements = all_of<Measurement>(metrics);
  for (const StartRecord& start : all_of<StartRecord>(metrics)) add_once(summary.machines, start.machine);
  if (!all_of<DivergenceRecord>(metrics).empty()) summary.state = RunState::diverged;
  if (folder.finished()) {
    summary.state = RunState::finished;
    const JsonValue results = folder.read_results();
    if (results.contains("seconds")) summary.seconds = results.real("seconds");
    for (const JsonValue& e : results.elements("evaluations")) summary.results.push_back(evaluation_from_json(e));
    if (results.contains("generated")) {
      for (const JsonValue& e : results.elements("generated")) summary.generated.push_back(evaluation_from_json(e));
    }
  }
  return summary;
}

std::string_view name_of(RunState state) {
  constexpr std::array<std::string_view, run_states.size()> names{"finished", "diverged", "failed", "unfinished",
                                                                  "waiting"};
  return names[static_cast<std::size_t>(state)];
}

RunState run_state_from_text(std::string_view text) {
  for (const RunState state : run_states) {
    if (name_of(state) == text) return state;
  }
  fail("report", "unknown state of a run: '{}'", text);
}

std::string ReportGroup::label(const std::set<std::string>& omitted) const {
  std::string text = encoding();
  for (const auto& [name, value] : settings) {
    if (!omitted.contains(name)) text += formatted(" {}={}", name, value);
  }
  return text;
}

std::set<std::string> settings_of_preset(const RunConfig& config) {
  std::set<std::string> same;
  if (config.preset.empty()) return same;
  try {
    const auto given = settings_of(config);
    for (const auto& [name, value] :
         settings_of(RunConfig::make(config.task->name, config.encoding.text(), config.preset))) {
      const auto own = given.find(name);
      if (own != given.end() && own->second == value) same.insert(name);
    }
  } catch (const Error&) {  // the preset no longer exists
  }
  return same;
}

std::int64_t ReportGroup::count(RunState state) const {
  return std::count_if(runs.begin(), runs.end(), [state](const RunSummary* run) { return run->state == state; });
}

namespace {

std::vector<Evaluation> of_split(const ReportGroup& group, std::vector<Evaluation> RunSummary::*which,
                                 std::string_view split) {
  std::vector<Evaluation> found;
  for (const RunSummary* run : group.runs) {
    for (const Evaluation& e : run->*which) {
      if (e.split == split) found.push_back(e);
    }
  }
  return found;
}

}  // namespace

std::vector<Evaluation> ReportGroup::results(std::string_view split) const {
  return of_split(*this, &RunSummary::results, split);
}

std::vector<Evaluation> ReportGroup::generated(std::string_view split) const {
  return of_split(*this, &RunSummary::generated, split);
}

JsonValue read_sweep_file(const std::string& path) {
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 30;
  JsonValue sweep = read_json(path, sweep_limits, most_bytes);
  check(sweep.integer("format") == 1, "sweep", "{}: format {} is not one that this version reads (1)", path,
        sweep.integer("format"));
  return sweep;
}

bool is_foreign_model(const std::string& folder) {
  std::error_code error;
  const std::string path = folder + "/config.json";
  if (!fs::is_regular_file(path, error)) return false;
  try {
    const JsonValue config = read_json(path);
    return config.is_object() && (config.contains("model_type") || config.contains("architectures"));
  } catch (const Error&) {
    return false;
  }
}

Report make_report(const std::vector<std::string>& paths) {
  Report report;
  Gatherer gatherer(report);
  for (const std::string& given : paths) {
    const std::string path = without_slashes(given);
    check(is_folder(path), "report", "there is no folder '{}'", path);
    check(gatherer.visit(path), "report", "'{}' holds no run: no config.json in it or below", path);
  }
  std::vector<const TaskEntry*> tasks;
  for (const RunSummary& run : report.runs) add_once(tasks, run.config.task);
  for (const TaskEntry* task : tasks) report.tasks.push_back(report_of(task, report.runs));
  return report;
}

namespace {

// [wrong tokens, all tokens, wrong sequences, all sequences]
JsonValue counts_json(const Evaluation& e) {
  return JsonValue(JsonValue::Array{e.wrong, e.scored, e.wrong_sequences, e.sequences});
}

// By split: [[step, wrong, all, wrong sequences, all], ...]
JsonValue curves_json(const RunSummary& run) {
  JsonValue curves = JsonValue::object();
  std::map<std::string, JsonValue::Array> by_split;
  for (const Measurement& m : run.measurements) {
    if (m.evaluation.generated) continue;
    const Evaluation& e = m.evaluation;
    by_split[e.split].push_back(JsonValue(JsonValue::Array{m.step, e.wrong, e.scored, e.wrong_sequences, e.sequences}));
  }
  for (auto& [split, points] : by_split) curves.set(split, JsonValue(std::move(points)));
  return curves;
}

// By split, for splits with a breakdown: the final [[key, wrong, all, wrong sequences, all], ...].
JsonValue keys_json(const RunSummary& run) {
  JsonValue keys = JsonValue::object();
  for (const Evaluation& e : run.results) {
    if (e.by.empty()) continue;
    JsonValue points = JsonValue::array();
    for (const auto& [key, counts] : e.by) {
      points.push(JsonValue(
          JsonValue::Array{std::int64_t{key}, counts.wrong, counts.scored, counts.wrong_sequences, counts.sequences}));
    }
    keys.set(e.split, std::move(points));
  }
  return keys;
}

// The key of a task's breakdown, "length"; empty without a breakdown.
std::string breakdown_of(const ReportTask& task) {
  for (const ReportGroup& group : task.groups) {
    for (const RunSummary* run : group.runs) {
      for (const Evaluation& e : run->results) {
        if (!e.breakdown.empty()) return e.breakdown;
      }
    }
  }
  return "";
}

JsonValue run_json(const RunSummary& run, const std::string& folder) {
  JsonValue machines = JsonValue::array(), results = JsonValue::object(), settings = JsonValue::object();
  for (const Machine& machine : run.machines) machines.push(machine.text());
  for (const Evaluation& e : run.results) results.set(e.split, counts_json(e));
  for (const Evaluation& e : run.generated) results.set(generated_title(e.split), counts_json(e));
  for (const auto& [name, value] : settings_of(run.config)) settings.set(name, value);
  JsonValue json = JsonValue::object({{"name", run.path},
                                      {"seed", run.config.run.seed},
                                      {"state", name_of(run.state)},
                                      {"seconds", run.seconds},
                                      {"preset", run.config.preset},
                                      {"settings", std::move(settings)},
                                      {"machines", std::move(machines)},
                                      {"results", std::move(results)},
                                      {"curves", curves_json(run)},
                                      {"keys", keys_json(run)}});
  const fs::path page = fs::path(run.path) / "inspect.html";
  if (path_exists(page)) json.set("inspect", fs::proximate(page, folder.empty() ? "." : folder).string());
  return json;
}

}  // namespace

JsonValue report_page_json(const Report& report, const std::string& folder) {
  JsonValue tasks = JsonValue::array(), problems = JsonValue::array();
  for (const ReportTask& task : report.tasks) {
    JsonValue splits = JsonValue::array(), generated = JsonValue::array(), groups = JsonValue::array();
    for (const std::string& split : task.splits) splits.push(split);
    for (const std::string& split : task.generated) generated.push(generated_title(split));
    for (const ReportGroup& group : task.groups) {
      JsonValue runs = JsonValue::array();
      for (const RunSummary* run : group.runs) runs.push(run_json(*run, folder));
      const Colour colour = colour_of(group.encoding());
      groups.push(JsonValue::object(
          {{"label", group.label()},
           {"pe", group.encoding()},
           {"colour", JsonValue::object({{"light", std::string(colour.light)}, {"dark", std::string(colour.dark)}})},
           {"runs", std::move(runs)}}));
    }
    tasks.push(JsonValue::object({{"name", task.task->name},
                                  {"summary", task.task->summary},
                                  {"sequences", task.scores_sequences},
                                  {"breakdown", breakdown_of(task)},
                                  {"splits", std::move(splits)},
                                  {"generated", std::move(generated)},
                                  {"tables", html_of(tables_of(task))},
                                  {"groups", std::move(groups)}}));
  }
  for (const std::string& problem : report.problems) problems.push(problem);
  return JsonValue::object({{"version", version},
                            {"overview", html_of(overview_tables(report), true)},
                            {"tasks", std::move(tasks)},
                            {"problems", std::move(problems)}});
}

std::string report_page(const Report& report, const std::string& folder) {
  std::string title;
  for (const ReportTask& task : report.tasks) title += (title.empty() ? "" : ", ") + task.task->name;
  return make_page("report.html", title + ": report", report_page_json(report, folder));
}

}  // namespace tally

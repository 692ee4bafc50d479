#include "tasks/results/report_page.hpp"

#include <filesystem>
#include <map>

#include "core/version.hpp"
#include "tasks/print/page.hpp"
#include "tasks/runs/model_record.hpp"

namespace tally {
namespace fs = std::filesystem;
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
  std::error_code error;
  if (fs::exists(page, error)) json.set("inspect", fs::proximate(page, folder.empty() ? "." : folder, error).string());
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
      JsonValue untrained = JsonValue::array();
      for (const std::string& split : group.untrained) untrained.push(split), untrained.push(generated_title(split));
      const Colour colour = colour_of(group.encoding());
      groups.push(JsonValue::object(
          {{"label", group.label()},
           {"pe", group.encoding()},
           {"colour", JsonValue::object({{"light", std::string(colour.light)}, {"dark", std::string(colour.dark)}})},
           {"untrained", std::move(untrained)},
           {"runs", std::move(runs)}}));
    }
    tasks.push(JsonValue::object({{"name", task.task->name},
                                  {"summary", task.task->summary},
                                  {"sequences", task.scores_sequences},
                                  {"breakdown", breakdown_of(task)},
                                  {"splits", std::move(splits)},
                                  {"generated", std::move(generated)},
                                  {"groups", std::move(groups)}}));
  }
  for (const std::string& problem : report.problems) problems.push(problem);
  return JsonValue::object({{"version", version},
                            {"overview", json_of(overview_tables(report))},
                            {"tasks", std::move(tasks)},
                            {"problems", std::move(problems)}});
}

std::string report_page(const Report& report, const std::string& folder) {
  std::string title;
  for (const ReportTask& task : report.tasks) title += (title.empty() ? "" : ", ") + task.task->name;
  return make_page("report.html", title + ": report", report_page_json(report, folder));
}

}  // namespace tally

// tally sweep: a grid of runs, every encoding with every seed and every combination of settings, several at a time; of
// a suite, on each of its presets.
#include <algorithm>
#include <memory>
#include <set>

#include "tasks/printable.hpp"
#include "tasks/report.hpp"
#include "tasks/run_folder.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/config_options.hpp"
#include "tasks/runner/grid.hpp"
#include "tasks/runner/run_plan.hpp"
#include "tasks/suite.hpp"

namespace tally {
namespace {

struct SweepSettings {
  std::string folder, seeds = "1..3";
  std::vector<std::string> grid;  // "model.layers=1,2"
  std::int64_t jobs = 0;          // 0: as many as the machine takes
  bool dry_run = false;
};

struct Variant {
  std::string folder;  // of its runs in the sweep's folder: "mqar/", and nothing where there is one task
  RunConfig config;
};

// "mqar/", where tally reproduce has the same runs; "group-word-quick-a5/" of another preset than quick.
std::string folder_of(const PresetEntry& preset) {
  return concat(preset.task, preset.name == "quick" ? "" : "-" + preset.name, "/");
}

// Every encoding, of a suite on every preset, without the grid.
std::vector<Variant> variants_of(const ConfigOptions& options) {
  std::vector<Variant> variants;
  const std::vector<std::string> encodings = options.encodings();
  if (options.suite().empty()) {
    for (const std::string& encoding : encodings) variants.push_back({"", options.resolve(encoding)});
    return variants;
  }
  const SuiteEntry& suite = as_usage([&]() -> const SuiteEntry& { return find_suite(options.suite()); });
  for (const PresetEntry* preset : presets_of(suite)) {
    for (const std::string& encoding : encodings) {
      variants.push_back({folder_of(*preset), options.resolve(encoding, *preset)});
    }
  }
  return variants;
}

// Every encoding with every combination of values, seed by seed, so that what is there after half the time compares
// all. A setting of an encoding is left out of the names of the encodings that do not have it.
std::vector<PlannedRun> make_plan(const SweepSettings& settings, const ConfigOptions& options) {
  const std::vector<GridDimension> dimensions = parse_grid(settings.grid);
  const std::vector<Variant> bases = variants_of(options);
  std::vector<std::pair<Settings, Variant>> variants;
  std::set<std::string> used;
  for (const Variant& base : bases) {
    std::vector<GridDimension> own;
    for (const GridDimension& dimension : dimensions) {
      if (dimension.key == "seed") throw UsageError("[sweep] seeds are given with --seeds");
      if (dimension.key.starts_with("pe.") && !base.config.has(dimension.key)) continue;
      own.push_back(dimension);
      used.insert(dimension.key);
    }
    for (const Settings& combination : combinations(own)) {
      RunConfig config = base.config.clone();
      as_usage([&] {
        for (const auto& [key, value] : combination) config.set(key, value);
        config.validate();
        config.refuse_idle();
      });
      variants.emplace_back(combination, Variant{base.folder, std::move(config)});
    }
  }
  for (const GridDimension& dimension : dimensions) {
    if (!used.contains(dimension.key)) {
      throw UsageError(concat("[sweep] no encoding has the option ", dimension.key,
                              did_you_mean_option(bases.front().config, dimension.key)));
    }
  }
  std::vector<PlannedRun> plan;
  for (const std::int64_t seed : parse_seeds(settings.seeds)) {
    for (const auto& [combination, variant] : variants) {
      plan.push_back(
          {variant.folder + run_name(variant.config.encoding.text(), combination, seed), variant.config.clone()});
      plan.back().config.run.seed = seed;
    }
  }
  return plan;
}

Result run_sweep(const SweepSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  RunPlan plan = options.blaming_file([&] { return RunPlan(settings.folder, make_plan(settings, options), common); });
  if (settings.dry_run) {
    refuse_with_dry_run("sweep", "--jobs", settings.jobs != 0);
    Result result;
    JsonValue runs = JsonValue::array(), too_large = JsonValue::array();
    for (const PlannedRun& run : plan.runs()) {
      runs.push(plan.path_of(run));
      result.text += printable(plan.path_of(run));
      if (plan.is_too_large(run)) {
        too_large.push(JsonValue::object({{"run", plan.path_of(run)}, {"why", run.too_large}}));
        result.text += concat(": ", plan.state_text(run));
      }
      result.text += "\n";
    }
    result.value = JsonValue::object({{"runs", std::move(runs)}, {"does_not_fit", std::move(too_large)}});
    result.code = plan.can_finish() ? exit_code::done : exit_code::failed;
    return result;
  }
  plan.take_stock();
  plan.execute(plan.jobs(settings.jobs));
  const Report report = make_report({plan.folder()});
  return {
      plan.code(),
      JsonValue::object({{"folder", plan.folder()}, {"states", plan.states_json()}, {"report", report_json(report)}}),
      concat("\n", overview_text(report), report_text(report), "\n", plan.states_text())};
}

}  // namespace

std::function<Result()> declare_sweep(CommandLine& line) {
  const auto settings = std::make_shared<SweepSettings>();
  line.add("DIR", &settings->folder, "folder for the runs", {.required = true});
  const auto options = ConfigOptions::declare(line, true);
  line.add("--seeds", &settings->seeds, "1..3, or 1,2,5");
  line.add("--set", &settings->grid, "key=value,value: an option with several values; may be given again");
  line.add("--jobs", &settings->jobs,
           "runs at a time, sharing the cores; 0: one for each core as far as memory goes, on a GPU one",
           {.least = 0, .most = 1024});
  line.add("--dry-run", &settings->dry_run, "name the runs and stop");
  return [settings, options, &common = line.common] { return run_sweep(*settings, *options, common); };
}

}  // namespace tally

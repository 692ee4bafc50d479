// tally sweep: trains a grid of runs, several at a time: every encoding with every seed and every combination of
// settings. With a suite, it does so for each of its presets. It runs on one machine, or with workers on any number of
// machines.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>

#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/results/report.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tasks/runs/suite.hpp"
#include "tasks/sweep/run_plan.hpp"
#include "tasks/sweep/sweep_script.hpp"
#include "tasks/sweep/sweep_status.hpp"

namespace tally {
namespace {

constexpr const char* usual_seeds = "1..3";

struct SweepSettings {
  std::string folder, seeds = usual_seeds;
  std::vector<std::string> grid;  // "model.layers=1,2"
  std::int64_t jobs = 0;          // 0: the most that fit on the machine
  bool dry_run = false;
  bool worker = false, status = false;
  std::string print;              // kind of script
  std::vector<std::string> only;  // names of runs; empty: all
  std::int64_t lease = lease_seconds;

  // Whether the folder lists the runs, because the command line names no grid.
  bool from_folder(const ConfigOptions& options) const {
    return (worker || status || !print.empty()) && options.names_nothing() && grid.empty() && seeds == usual_seeds;
  }
};

struct SweepVariant {
  std::string folder;  // subfolder of the sweep's folder: "mqar/", or empty for a single task
  RunConfig config;
  const PresetEntry* preset = nullptr;  // of a suite
};

// "mqar/", the same path that tally reproduce uses; "group-word-quick-a5/" for a preset other than quick.
std::string folder_of(const PresetEntry& preset) {
  return formatted("{}{}/", preset.task, preset.name == "quick" ? "" : "-" + preset.name);
}

// Every encoding, for a suite on every preset. The grid is not applied yet, since its settings may contradict the rest.
std::vector<SweepVariant> variants_of(const ConfigOptions& options) {
  std::vector<SweepVariant> variants;
  const std::vector<std::string> encodings = options.encodings();
  if (options.suite().empty()) {
    for (const std::string& encoding : encodings) variants.push_back({"", options.begin(encoding)});
    return variants;
  }
  const SuiteEntry& suite = as_usage([&]() -> const SuiteEntry& { return find_suite(options.suite()); });
  for (const PresetEntry* preset : suite.presets) {
    for (const std::string& encoding : encodings) {
      variants.push_back({folder_of(*preset), options.begin(encoding, *preset), preset});
    }
  }
  return variants;
}

// Every encoding with every combination of values, one seed after the other, so that an unfinished sweep already
// compares all variants. The name of a run omits settings that its encoding does not have.
std::vector<PlannedRun> make_plan(const SweepSettings& settings, const ConfigOptions& options) {
  const std::vector<GridDimension> dimensions = parse_grid(settings.grid);
  const std::vector<SweepVariant> bases = variants_of(options);
  std::vector<std::pair<Settings, SweepVariant>> variants;
  std::set<std::string> used;
  for (const SweepVariant& base : bases) {
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
      });
      config.shorten_warmup();
      options.check_whole(config, base.preset);
      variants.emplace_back(combination, SweepVariant{base.folder, std::move(config)});
    }
  }
  for (const GridDimension& dimension : dimensions) {
    if (!used.contains(dimension.key)) {
      throw UsageError(formatted("[sweep] no encoding has the option {}{}", dimension.key,
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

std::vector<PlannedRun> planned(const SweepSettings& settings, const ConfigOptions& options) {
  if (settings.folder.empty()) throw UsageError("[usage] the name of the folder for the runs is empty");
  std::vector<PlannedRun> plan =
      settings.from_folder(options) ? listed_runs(settings.folder) : make_plan(settings, options);
  for (const std::string& name : settings.only) {
    if (std::ranges::count(plan, name, &PlannedRun::name) == 0) {
      throw UsageError(formatted("[sweep] --only {}: the sweep has no such run", name));
    }
  }
  if (!settings.only.empty()) {
    std::erase_if(plan, [&](const PlannedRun& run) { return std::ranges::count(settings.only, run.name) == 0; });
  }
  return plan;
}

// Lists the runs in the folder and prints the script that trains them.
Result print_script(const SweepSettings& settings, RunPlan& plan, CommonOptions common) {
  plan.write_list();
  SweepScript script;
  std::error_code error;
  script.program = std::filesystem::read_symlink("/proc/self/exe", error);
  script.folder = std::filesystem::canonical(plan.folder());
  if (common.threads == 0) common.threads = 1;
  common.quiet = common.json = false;
  script.words = common.words();
  script.threads = common.threads;
  constexpr double mib = 1 << 20, of_the_program = 256;
  script.memory_mib = static_cast<std::int64_t>(std::ceil(plan.bytes_of_run() / mib + of_the_program));
  for (const PlannedRun& run : plan.runs()) {
    if (run.state != RunState::finished) script.runs.push_back(run.name);
  }
  check(!script.runs.empty(), "sweep", "every run in '{}' is finished: there is nothing to start", plan.folder());
  constexpr std::int64_t elements = 100;  // of an array, to leave room for other users of the cluster
  script.jobs = settings.jobs > 0 ? settings.jobs : elements;
  const std::string text = slurm_script(script);
  return {.value = JsonValue::object({{"script", text}}), .text = text};
}

Result run_sweep(const SweepSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  RunPlan plan = options.blaming_file([&] {
    RunPlan made(settings.folder, planned(settings, options), common, static_cast<double>(settings.lease));
    made.take_stock();
    return made;
  });
  if (settings.dry_run) {
    refuse_with_dry_run("sweep", "--jobs", settings.jobs != 0);
    Result result;
    JsonValue runs = JsonValue::array(), too_large = JsonValue::array();
    for (const PlannedRun& run : plan.runs()) {
      runs.push(plan.path_of(run));
      result.text += printable(plan.path_of(run));
      if (plan.is_too_large(run)) {
        too_large.push(JsonValue::object({{"run", plan.path_of(run)}, {"why", run.too_large}}));
        result.text += formatted(": {}", plan.state_text(run));
      }
      result.text += "\n";
    }
    result.value = JsonValue::object({{"runs", std::move(runs)}, {"does_not_fit", std::move(too_large)}});
    result.code = plan.can_finish() ? exit_code::done : exit_code::failed;
    return result;
  }
  if (settings.status) return sweep_status(plan);
  if (!settings.print.empty()) return print_script(settings, plan, common);
  if (settings.worker) plan.work_beside_others();
  plan.execute(plan.jobs(settings.jobs));
  if (settings.worker) {
    return {plan.code(), JsonValue::object({{"folder", plan.folder()}, {"states", plan.states_json()}}),
            formatted("{}; {}", plan.work_text(), plan.states_text())};
  }
  const Report report = make_report({plan.folder()});
  return {
      plan.code(),
      JsonValue::object({{"folder", plan.folder()}, {"states", plan.states_json()}, {"report", report_json(report)}}),
      formatted("\n{}{}\n{}", text_of(overview_tables(report)), report_text(report), plan.states_text())};
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
  const std::string machines = "Many machines";
  line.add(
      "--worker", &settings->worker,
      "train runs that no one else does, beside other workers on any machine that shares the folder, until all are "
      "done; without a --task those that the folder lists",
      {.group = machines, .excludes = {"--dry-run"}});
  line.add("--only", &settings->only, "a run by its name; may be given again", {.group = machines});
  line.add("--lease", &settings->lease,
           "seconds after which a worker that gives no sign of life is taken for dead; 60 and more where NFS is shared",
           {.group = machines, .least = 1, .most = 86'400});
  line.add("--print", &settings->print, "list the runs in the folder and print a script that trains them with Slurm",
           {.group = machines, .allowed = {"slurm"}, .excludes = {"--dry-run", "--worker"}});
  line.add("--status", &settings->status, "how far the runs are and who trains them",
           {.group = machines, .excludes = {"--dry-run", "--worker", "--print"}});
  return [settings, options, &common = line.common] { return run_sweep(*settings, *options, common); };
}

}  // namespace tally

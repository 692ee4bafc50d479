// tally sweep: trains a grid of runs, several at a time: every encoding with every seed and every combination of
// settings. It runs on one machine, or with workers on any number of machines.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/training.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/results/report.hpp"
#include "tasks/runs/run_folder.hpp"
#include "tasks/sweep/run_plan.hpp"

namespace tally {
namespace {

constexpr const char* usual_seeds = "1..3";

struct SweepSettings {
  std::string folder, seeds = usual_seeds;
  std::vector<std::string> grid;  // "model.layers=1,2"
  std::int64_t jobs = 0;          // 0: the most that fit on the machine
  bool dry_run = false;
  bool worker = false;
  std::string print;              // kind of script
  std::vector<std::string> only;  // names of runs; empty: all
  std::int64_t lease = lease_seconds;

  // Whether the folder lists the runs, because the command line names no grid.
  bool from_folder(const ConfigOptions& options) const {
    return (worker || dry_run || !print.empty()) && options.names_nothing() && grid.empty() && seeds == usual_seeds;
  }
};

// Every encoding with every combination of values, one seed after the other, so that an unfinished sweep already
// compares all variants. The name of a run omits settings that its encoding does not have.
std::vector<PlannedRun> make_plan(const SweepSettings& settings, const ConfigOptions& options) {
  const std::vector<GridDimension> dimensions = parse_grid(settings.grid);
  std::vector<std::pair<Settings, RunConfig>> variants;
  std::set<std::string> used;
  for (const std::string& encoding : options.encodings()) {
    const RunConfig base = options.begin(encoding);  // the grid's settings may contradict the rest
    std::vector<GridDimension> own;
    for (const GridDimension& dimension : dimensions) {
      if (dimension.key == "seed") throw UsageError("[sweep] seeds are given with --seeds");
      if (dimension.key.starts_with("pe.") && !base.has(dimension.key)) continue;
      own.push_back(dimension);
      used.insert(dimension.key);
    }
    for (const Settings& combination : combinations(own)) {
      RunConfig config = base.clone();
      as_usage([&] {
        for (const auto& [key, value] : combination) config.set(key, value);
      });
      config.shorten_warmup();
      options.check_whole(config);
      variants.emplace_back(combination, std::move(config));
    }
  }
  for (const GridDimension& dimension : dimensions) {
    if (!used.contains(dimension.key)) {
      throw UsageError(formatted("[sweep] no encoding has the option {}{}", dimension.key,
                                 did_you_mean_option(options.begin(options.encodings().front()), dimension.key)));
    }
  }
  std::vector<PlannedRun> plan;
  for (const std::int64_t seed : parse_seeds(settings.seeds)) {
    for (const auto& [combination, config] : variants) {
      plan.push_back({run_name(config.encoding.text(), combination, seed), config.clone()});
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

// Lists the runs in the folder and prints the script that trains them. Each run gets a worker of its own (--only), so a
// script that is restarted, or runs next to others, trains only the remaining runs.
Result print_script(const SweepSettings& settings, RunPlan& plan, CommonOptions common) {
  plan.write_list();
  const std::string folder = std::filesystem::canonical(plan.folder());
  // Quotes would be part of the name in a line of options; %a is the element.
  for (const char c : folder) {
    check(static_cast<unsigned char>(c) > ' ' && c != '%' && c != '\\', "sweep",
          "'{}' has a character that sbatch does not take in the name of a log", folder);
  }
  if (common.threads == 0) common.threads = 1;
  common.quiet = common.json = false;
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe"), "sweep", folder, "--worker",
                                 "--jobs=1"};
  for (const std::string& word : common.words()) words.push_back(word);
  for (std::string& word : words) word = shell_word(word);
  std::int64_t count = 0;
  std::string runs;
  for (const PlannedRun& run : plan.runs()) {
    if (run.state == RunState::finished) continue;
    check(run.name.find('\n') == std::string::npos, "sweep", "the name of a run has a line end");
    runs += formatted("  {}\n", shell_word(run.name));
    ++count;
  }
  check(count > 0, "sweep", "every run in '{}' is finished: there is nothing to start", plan.folder());
  constexpr std::int64_t usual_elements = 100;  // of an array, to leave room for other users of the cluster
  constexpr double mib = 1 << 20, of_the_program = 256;
  const std::int64_t elements = std::min(settings.jobs > 0 ? settings.jobs : usual_elements, count);
  std::string text(data_file("slurm.txt"));
  for (const auto& [name, value] :
       {std::pair{"COUNT", to_text(count)},
        {"ELEMENTS", to_text(elements)},
        {"LAST", to_text(elements - 1)},
        {"THREADS", to_text(common.threads)},
        {"MEMORY", to_text(static_cast<std::int64_t>(std::ceil(plan.bytes_of_run() / mib + of_the_program)))},
        {"FOLDER", folder},
        {"RUNS", runs},
        {"WORKER", joined(words, " ")}}) {
    text = replaced(std::move(text), formatted("{{{{{}}}}}", name), value);
  }
  return {.value = JsonValue::object({{"script", text}}), .text = text};
}

Result run_sweep(const SweepSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  RunPlan plan(settings.folder, planned(settings, options), common, static_cast<double>(settings.lease));
  plan.take_stock();
  if (settings.dry_run) {
    const std::int64_t jobs = plan.jobs(settings.jobs);
    say(common, plan.left_text(jobs));
    return plan.overview(jobs);
  }
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
  line.add("--set", &settings->grid, "key=value,value: an option with several values; may be repeated");
  line.add("--jobs", &settings->jobs,
           "parallel runs, which share the cores; 0: one per core if memory suffices, one on a GPU",
           {.least = 0, .most = 1024});
  line.add("--dry-run", &settings->dry_run,
           "name the runs, how far they are, who trains them and the time left, and stop; without a --task those that "
           "the folder lists");
  const std::string machines = "Many machines";
  line.add("--worker", &settings->worker,
           "train unclaimed runs until all are done, together with other workers on machines that share the folder; "
           "without --task: the runs that the folder lists",
           {.group = machines, .excludes = {"--dry-run"}});
  line.add("--only", &settings->only, "train only the run with this name; may be repeated", {.group = machines});
  line.add("--lease", &settings->lease,
           "seconds without a heartbeat after which a worker counts as dead; at least 60 on NFS",
           {.group = machines, .least = 1, .most = 86'400});
  line.add("--print", &settings->print, "list the runs in the folder and print a script that trains them with Slurm",
           {.group = machines, .allowed = {"slurm"}, .excludes = {"--dry-run", "--worker"}});
  return [settings, options, &common = line.common] { return run_sweep(*settings, *options, common); };
}

}  // namespace tally

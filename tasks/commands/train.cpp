// tally train
#include <algorithm>
#include <memory>
#include <optional>

#include "core/distributed/process_group.hpp"
#include "tasks/checks/bench.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/command_line/training.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/runs/source_weights.hpp"

namespace tally {
namespace {

struct TrainSettings {
  std::string run, profile;
  bool force = false, dry_run = false, split_optimiser = false;
  OptimizerState state() const { return split_optimiser ? OptimizerState::split : OptimizerState::whole; }
};

// A dry run trains a few steps of smaller models to measure their time.
constexpr std::int64_t most_measured = std::int64_t{1} << 30;  // bytes

// The plan of the run.
Result plan_of(const RunConfig& config, const MemoryEstimate& estimate, const std::optional<RunCost>& cost) {
  const std::unique_ptr<Task> task = config.make_task();
  const std::int64_t tokens = config.run.batch * task->splits().front().length;
  Result result{
      .value = JsonValue::object({{"config", config.to_json()},
                                  {"parameters", estimate.parameter_count},
                                  {"encoding_parameters", estimate.encoding_parameter_count},
                                  {"memory_bytes", estimate.total()},
                                  {"memory_at_most", estimate.at_most},
                                  {"steps", config.run.steps},
                                  {"tokens_per_step", tokens}}),
      .text = formatted("{} parameters, {} of them the encoding's; {} steps of up to {} tokens\nmemory for tensors: "
                        "{}{} (parameters {}, gradients {}, optimiser {}, activations {}), without the program and its "
                        "libraries\n",
                        with_commas(estimate.parameter_count), with_commas(estimate.encoding_parameter_count),
                        config.run.steps, with_commas(tokens), estimate.at_most ? "at most " : "about ",
                        bytes_text(estimate.total()), bytes_text(estimate.parameters), bytes_text(estimate.gradients),
                        bytes_text(estimate.optimiser), bytes_text(estimate.activations))};
  if (cost) {
    result.value.set("training_seconds", cost->training).set("evaluation_seconds", cost->evaluations);
    result.text += formatted("time on this machine: about {} (training {}, evaluations {})\n",
                             duration_text(cost->training + cost->evaluations), duration_text(cost->training),
                             duration_text(cost->evaluations));
  }
  return result;
}

Result run_train(const TrainSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  if (settings.run.empty()) throw UsageError("[usage] the name of the run folder is empty");
  RunConfig config = options.resolve();
  std::optional<SourceWeights> source;
  std::string start_text;
  if (!options.from().empty()) {
    as_usage([&] {
      check(absolute_path(settings.run) != absolute_path(options.from()), "from",
            "the new run and the run of --from are the same folder, '{}'", settings.run);
      source.emplace(options.from());
      start_text = match_text(source->match(config, *config.make_task()), source->origin());
      config.origin = source->origin();
    });
  }
  const MemoryEstimate need = check_can_train(config, settings.state());
  check_ranks(config);
  if (settings.dry_run) {
    say(common, config_text(config, true));
    if (source) say(common, start_text);
    for (const std::string& line : square_memory_notes(config.encoding)) say(common, "note: " + line);
    std::optional<RunCost> cost;
    if (!common.quiet && ProcessGroup::world().alone() && need.total() <= most_measured) cost = measure_cost(config);
    return plan_of(config, need, cost);
  }
  if (!settings.profile.empty()) check_output(settings.profile, settings.run);
  watch_signals();  // before the first output
  RunFolder folder = open_together(settings.run, [&] {
    RunFolder made = RunFolder::create(settings.run, config, settings.force);
    if (source) source->write_start(made);
    return made;
  });
  say(common, config_text(config, false));  // a refused run prints only the error
  if (source) say(common, start_text);
  return run_training(std::move(folder), common, settings.profile, settings.state());
}

// Whether the folder is an imported run that has not been trained yet.
bool is_imported(const std::string& folder) {
  try {
    const RunFolder run = RunFolder::open(folder);
    const std::vector<std::int64_t> steps = run.checkpoint_steps();
    return run.begins_with_weights() && (steps.empty() || steps.back() == 0);
  } catch (const Error&) {  // it is not a run, or the command reports the error
    return false;
  }
}

}  // namespace

std::function<Result()> declare_train(CommandLine& line) {
  // An imported model already has a configuration.
  if (line.look_ahead("--from").empty() && is_imported(line.look_ahead_folder())) return declare_resume(line);
  const auto settings = std::make_shared<TrainSettings>();
  line.add("RUN", &settings->run, "folder to train into", {.required = true});
  const auto options = ConfigOptions::declare(line);
  line.add("--force", &settings->force, "move existing contents of the folder aside");
  line.add("--profile", &settings->profile, profile_help);
  line.add(
      "--dry-run", &settings->dry_run,
      "print configuration, parameters, memory and steps, then stop; also the time, if a run needs less than 1 GiB",
      {.excludes = {"--force", "--profile"}});
  line.add("--split-optimiser", &settings->split_optimiser, split_optimiser_help);
  return [settings, options, &common = line.common] { return run_train(*settings, *options, common); };
}

}  // namespace tally

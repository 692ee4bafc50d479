// tally train
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "tasks/estimate.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/config_options.hpp"
#include "tasks/runner/output_file.hpp"
#include "tasks/runner/signals.hpp"
#include "tasks/runner/training.hpp"
#include "tasks/statistics.hpp"

namespace tally {
namespace {

struct TrainSettings {
  std::string run;
  bool force = false, dry_run = false;
};

// What the run would be, without making the model.
int print_plan(const RunConfig& config, const CommonOptions& common) {
  const std::unique_ptr<Task> task = config.make_task();
  const MemoryEstimate estimate = estimate_training(config, *task);
  const std::int64_t tokens = config.run.batch * task->splits().front().length;
  if (common.json) {
    std::cout << write_json(JsonValue::object({{"config", config.to_json()},
                                               {"parameters", estimate.parameter_count},
                                               {"encoding_parameters", estimate.encoding_parameter_count},
                                               {"memory_bytes", estimate.total()},
                                               {"steps", config.run.steps},
                                               {"tokens_per_step", tokens}}))
              << "\n";
    return exit_code::done;
  }
  std::cout << concat(with_commas(estimate.parameter_count), " parameters, ",
                      with_commas(estimate.encoding_parameter_count), " of them the encoding's; ", config.run.steps,
                      " steps of up to ", with_commas(tokens), " tokens\nmemory: about ", bytes_text(estimate.total()),
                      " (parameters ", bytes_text(estimate.parameters), ", gradients ", bytes_text(estimate.gradients),
                      ", optimiser ", bytes_text(estimate.optimiser), ", activations ",
                      bytes_text(estimate.activations), ")\n");
  return exit_code::done;
}

int run_train(const TrainSettings& settings, const ConfigOptions& options, const CommonOptions& common,
              const WatchOptions& watch) {
  if (settings.run.empty()) throw UsageError("[usage] the name of the run folder is empty");
  const RunConfig config = options.resolve();
  options.blaming_file([&] { check_can_train(config); });
  const auto print_config = [&] {
    if (!common.quiet) (common.json ? std::cerr : std::cout) << config_text(config) << std::flush;
  };
  if (settings.dry_run) {
    print_config();
    return print_plan(config, common);
  }
  if (!watch.profile.empty()) check_output(watch.profile, settings.run);
  watch_signals();  // before the first word is printed
  RunFolder folder = RunFolder::create(settings.run, config, settings.force);
  print_config();  // a run that is refused says why and nothing else
  return run_training(std::move(folder), common, watch);
}

}  // namespace

std::function<int()> declare_train(CLI::App& app, CommonOptions& common, const std::vector<std::string>& arguments) {
  auto settings = std::make_shared<TrainSettings>();
  app.add_option("RUN", settings->run, "folder to train into")->required();
  const auto options = ConfigOptions::declare(app, arguments);
  app.add_flag("--force", settings->force, "move what the folder holds aside")->group("What");
  app.add_flag("--dry-run", settings->dry_run, "print the configuration, parameters, memory and steps, and stop")
      ->group("What");
  const auto watch = declare_watch(app);
  return [settings, options, watch, &common] { return run_train(*settings, *options, common, *watch); };
}

}  // namespace tally

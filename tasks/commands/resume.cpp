// tally resume: continues a run, possibly with other settings, but never with another model.
#include <iostream>
#include <memory>
#include <optional>

#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/command_line/training.hpp"
#include "tasks/commands/parts/trained_model.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/runs/checkpoint.hpp"

namespace tally {
namespace {

struct ResumeSettings {
  std::string run, profile;
  std::string task, encoding;  // as given, refused if they differ from the run's
  std::int64_t claim = 0;      // of the plan that trains the run
  bool restart = false, split_optimiser = false;
  OptimizerState state() const { return split_optimiser ? OptimizerState::split : OptimizerState::whole; }
};

// The contents of a run's checkpoints.
enum class Held { nothing, weights, weights_and_state };

// Throws UsageError for a change of the model.
void refuse_other_model(const RunConfig& before, const RunConfig& after, Held held) {
  const ModelRecord model = model_record(before, *before.make_task());
  for (const std::string& difference : differences(before, after)) {
    const std::string name = difference.substr(0, difference.find(' '));
    if (model.contains(name)) throw UsageError(formatted("[resume] the model of a run cannot change: {}", difference));
    if (name == "model.init" && held != Held::nothing) {
      throw UsageError(formatted("[resume] the run has its weights already, so this has no effect: {}", difference));
    }
  }
  if (parameter_shapes(before, *before.make_task()) != parameter_shapes(after, *after.make_task())) {
    throw UsageError(
        "[resume] the model of a run cannot change: with these task options it would have other parameters");
  }
}

// Throws UsageError for a change that makes the saved optimiser state unusable.
void refuse_other_optimiser(const RunConfig& before, const RunConfig& after) {
  if (before.run.train != after.run.train) {
    throw UsageError("[resume] which parameters are trained can change before the first step alone");
  }
  if (before.optimiser.name != after.optimiser.name) {
    throw UsageError(
        formatted("[resume] the optimiser of a run can change before the first step alone: optimiser.name {} -> {}",
                  before.optimiser.name, after.optimiser.name));
  }
  if (Optimizer::make(before.optimiser, {})->state_names() != Optimizer::make(after.optimiser, {})->state_names()) {
    throw UsageError(
        formatted("[resume] what {} keeps for each parameter can change before the first step alone: these options "
                  "need other state",
                  after.optimiser.name));
  }
}

Held held_by(const RunFolder& folder, bool restart) {
  const std::vector<std::int64_t> steps = folder.checkpoint_steps();
  if (!restart && !steps.empty() && steps.back() > 0) return Held::weights_and_state;
  return folder.begins_with_weights() ? Held::weights : Held::nothing;
}

// Throws UsageError when the run is already beyond this step. A file that cannot be read is ignored here.
void refuse_fewer_steps(const RunFolder& folder, std::int64_t steps) {
  const std::vector<std::int64_t> saved = folder.checkpoint_steps();
  if (saved.empty() || saved.back() <= steps) return;
  const std::int64_t reached = folder.newest_checkpoint([](const std::string&) {}).step;
  if (reached > steps) throw UsageError(formatted("[resume] the run is at step {} already, beyond {}", reached, steps));
}

// Updates the data paths of a finished run, if the data is the same.
void relocate(RunFolder& folder, const RunConfig& config) {
  const StoredCheckpoint newest = folder.newest_checkpoint([](const std::string&) {});
  in_file(folder.checkpoint_path(newest.step), [&] { check_same_data(newest.data, *config.make_task()); });
  folder.relocate(config);
}

void restart(const RunFolder& folder, const CommonOptions& common) {
  if (folder.writes()) {
    const std::string aside = folder.restart();
    if (!aside.empty()) say(common, formatted("what was trained is now in {}", printable(aside)));
  }
  ProcessGroup::world().barrier();
}

Result run_resume(const ResumeSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  if (!settings.profile.empty()) check_output(settings.profile, settings.run);
  RunFolder folder = open_together(settings.run, [&] { return RunFolder::open_to_train(settings.run); });
  if (settings.claim > 0) folder.claimed(settings.claim);
  RunConfig after = folder.config().clone();
  options.apply(after);
  // Moved data files do not make it another run.
  const RunConfig before = folder.config().with_paths_of(after);
  const std::vector<std::string> moved = differences(folder.config(), before);
  make_own_task(folder, before);
  if (!settings.task.empty() && settings.task != before.task->name) {
    throw UsageError(formatted("[resume] the task of a run cannot change: it is {}", before.task->name));
  }
  if (!settings.encoding.empty() && EncodingChoice::parse(settings.encoding).text() != before.encoding.text()) {
    throw UsageError(formatted("[resume] the encoding of a run cannot change: it is {}", before.encoding.text()));
  }
  as_usage([&] {
    after.validate();
    after.refuse_idle(&before);
    const Held held = held_by(folder, settings.restart);
    refuse_other_model(before, after, held);
    if (held == Held::weights_and_state) refuse_other_optimiser(before, after);
  });
  check_ranks(after);
  if (!settings.restart && folder.finished() && after.run.steps <= before.run.steps) {
    if (!moved.empty()) relocate(folder, before);
    const std::optional<RunConfig> trained = folder.trained_config(read_metrics(folder.metrics_path()));
    for (const std::string& change :
         trained ? differences(trained->with_paths_of(after), after) : differences(before, after))
      (common.json ? std::cerr : std::cout) << formatted("not applied: {}\n", printable(change)) << std::flush;
    return run_training(std::move(folder), common, settings.profile);
  }
  if (!settings.restart) refuse_fewer_steps(folder, after.run.steps);
  check_can_train(after, settings.state());
  if (settings.restart) restart(folder, common);
  folder.change_config(after);
  return run_training(std::move(folder), common, settings.profile, settings.state());
}

}  // namespace

std::function<Result()> declare_resume(CommandLine& line) {
  const auto settings = std::make_shared<ResumeSettings>();
  line.add("RUN", &settings->run, "folder of the run", {.required = true});
  line.add("--task", &settings->task, "must equal the run's own");
  line.add("--pe", &settings->encoding, "must equal the run's own");
  auto options = std::make_shared<ConfigOptions>();
  if (const std::string run = line.look_ahead_folder(); !run.empty()) {
    options = ConfigOptions::declare_for(line, RunFolder::open(run).config());
  }
  line.add("--restart", &settings->restart,
           "start again at step 0; checkpoints, metrics and results are moved to checkpoints.old in the run");
  line.add("--profile", &settings->profile, profile_help);
  line.add("--split-optimiser", &settings->split_optimiser, split_optimiser_help);
  line.add("--claim", &settings->claim, "the claim of the sweep that trains it", {.group = "", .least = 1});
  return [settings, options, &common = line.common] { return run_resume(*settings, *options, common); };
}

}  // namespace tally

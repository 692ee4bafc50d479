// tally resume: goes on with a run, perhaps with other settings, but never with another model.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "tasks/estimate.hpp"
#include "tasks/printable.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/config_options.hpp"
#include "tasks/runner/output_file.hpp"
#include "tasks/runner/training.hpp"

namespace tally {
namespace {

struct ResumeSettings {
  std::string run;
  std::string task, encoding;  // as given, to be refused when they are not the run's
};

// The run among the words behind the command: its configuration decides which options there are. Empty when none of
// them is a run; the command then says what is wrong.
std::string find_run(const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    std::error_code error;
    if (!word.starts_with("-") && std::filesystem::exists(word + "/config.json", error)) return word;
  }
  return "";
}

// Throws UsageError when the parameters or the optimiser's state of the run would no longer fit.
void refuse_other_model(const RunConfig& before, const RunConfig& after) {
  for (const std::string& difference : differences(before, after)) {
    const bool architecture = difference.starts_with("model.") || difference.starts_with("pe") ||
                              difference.starts_with("task ") || difference.starts_with("dtype ") ||
                              difference.starts_with("optimiser.name ");
    if (architecture) throw UsageError(concat("[resume] the model of a run cannot change: ", difference));
  }
  if ((before.optimiser.momentum > 0) != (after.optimiser.momentum > 0)) {
    throw UsageError("[resume] momentum cannot be switched on or off in a run: it has state of its own");
  }
  if (parameter_shapes(before, *before.make_task()) != parameter_shapes(after, *after.make_task())) {
    throw UsageError(
        "[resume] the model of a run cannot change: with these task options it would have other parameters");
  }
}

// Throws UsageError when the run is beyond so many steps. A file that cannot be read does not say that it is.
void refuse_fewer_steps(const RunFolder& folder, std::int64_t steps) {
  const std::vector<std::int64_t> saved = folder.checkpoint_steps();
  if (saved.empty() || saved.back() <= steps) return;
  const std::int64_t reached = folder.newest_checkpoint([](const std::string&) {}).step;
  if (reached > steps) throw UsageError(concat("[resume] the run is at step ", reached, " already, beyond ", steps));
}

int run_resume(const ResumeSettings& settings, const ConfigOptions& options, const CommonOptions& common,
               const WatchOptions& watch) {
  if (!watch.profile.empty()) check_output(watch.profile, settings.run);
  RunFolder folder = RunFolder::open_to_train(settings.run);
  const RunConfig before = folder.config().clone();
  in_file(folder.config_path(), [&] { before.make_task(); });
  if (!settings.task.empty() && settings.task != before.task->name) {
    throw UsageError(concat("[resume] the task of a run cannot change: it is ", before.task->name));
  }
  if (!settings.encoding.empty() && EncodingChoice::parse(settings.encoding).text() != before.encoding.text()) {
    throw UsageError(concat("[resume] the encoding of a run cannot change: it is ", before.encoding.text()));
  }
  RunConfig after = before.clone();
  options.apply(after);
  as_usage([&] {
    after.validate();
    refuse_other_model(before, after);
    return 0;
  });
  if (folder.finished() && after.run.steps <= before.run.steps) {
    std::ostream& out = common.json ? std::cerr : std::cout;
    const std::optional<RunConfig> trained = folder.trained_config(folder.read_metrics());
    for (const std::string& change : differences(trained ? *trained : before, after))
      out << "not applied: " << printable(change) << "\n" << std::flush;
    return run_training(std::move(folder), common, watch);
  }
  refuse_fewer_steps(folder, after.run.steps);
  check_can_train(after);
  folder.change_config(after);
  return run_training(std::move(folder), common, watch);
}

}  // namespace

std::function<int()> declare_resume(CLI::App& app, CommonOptions& common, const std::vector<std::string>& arguments) {
  auto settings = std::make_shared<ResumeSettings>();
  app.add_option("RUN", settings->run, "folder of the run")->required();
  app.add_option("--task", settings->task, "must be the run's own")->group("What");
  app.add_option("--pe", settings->encoding, "must be the run's own")->group("What");
  auto options = std::make_shared<ConfigOptions>();
  if (const std::string run = find_run(arguments); !run.empty()) {
    options = ConfigOptions::declare_for(app, RunFolder::open(run).config());
  }
  const auto watch = declare_watch(app);
  return [settings, options, watch, &common] { return run_resume(*settings, *options, common, *watch); };
}

}  // namespace tally

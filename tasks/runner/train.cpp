// tally train, tally resume
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "tasks/runner/commands.hpp"
#include "tasks/runner/config_options.hpp"
#include "tasks/runner/progress.hpp"
#include "tasks/runner/signals.hpp"
#include "tasks/train.hpp"

namespace tally {
namespace {

int train_in(const RunFolder& folder, const CommonOptions& common) {
  const std::atomic<bool>& stop = watch_signals();
  ProgressPrinter progress(common.quiet, common.json);
  const bool was_finished = folder.finished();
  const TrainOutcome outcome = train(folder, progress, stop);
  if (!was_finished) progress.finished(folder, outcome);
  if (common.json && folder.finished()) std::cout << write_json(folder.read_results()) << "\n";
  return outcome == TrainOutcome::done ? exit_code::done : signal_exit_code();
}

}  // namespace

std::function<int()> declare_train(CLI::App& app, CommonOptions& common, const std::vector<std::string>& arguments) {
  struct Settings {
    std::string run;
    bool force = false;
  };
  auto settings = std::make_shared<Settings>();
  app.add_option("RUN", settings->run, "folder to train into")->required();
  const auto options = ConfigOptions::declare(app, arguments);
  app.add_flag("--force", settings->force, "move what the folder holds aside")->group("What");
  return [settings, options, &common] {
    const RunConfig config = options->resolve();
    return train_in(RunFolder::create(settings->run, config, settings->force), common);
  };
}

std::function<int()> declare_resume(CLI::App& app, CommonOptions& common, const std::vector<std::string>&) {
  auto run = std::make_shared<std::string>();
  app.add_option("RUN", *run, "folder of the run")->required();
  return [run, &common] { return train_in(RunFolder::open(*run), common); };
}

}  // namespace tally

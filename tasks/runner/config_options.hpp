// The command-line options that make up a run's configuration: --task, --pe, --preset, --config, and every option of
// the task, encodings, model, optimiser and run by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/config.hpp"
#include "tasks/runner/command.hpp"

namespace tally {

class ConfigOptions {
 public:
  // Declares the options on `app`. The words behind the command are looked through first, because task and encodings
  // bring options of their own; without a task the help shows those of flip-flop.
  static std::shared_ptr<ConfigOptions> declare(CLI::App& app, const std::vector<std::string>& arguments);
  // Declares the options of a given configuration alone, and of these only those whose full names are wanted.
  static std::shared_ptr<ConfigOptions> declare_for(
      CLI::App& app, const RunConfig& config,
      const std::function<bool(std::string_view name)>& wanted = [](std::string_view) { return true; });

  // Preset, then the file of --config, then single options. Throws UsageError for what does not fit.
  RunConfig resolve() const;
  // Applies the single options to another configuration.
  void apply(RunConfig& config) const;
  bool any() const { return !settings_.empty(); }

 private:
  void declare_groups(CLI::App& app, const RunConfig& config,
                      const std::function<bool(std::string_view name)>& wanted);

  std::string task_, encoding_, preset_, file_;
  std::vector<std::pair<std::string, std::string>> settings_;  // in the order given
};

// The configuration as one text block: "  model.width 64".
std::string config_text(const RunConfig& config);

}  // namespace tally

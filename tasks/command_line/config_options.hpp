// The command-line options that make up a run's configuration: --task, --pe, --preset, --config, and every option of
// the task, encodings, model, optimiser and run by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {

// --set key=value,value: every combination of settings.

// The text as a whole number, or nothing if it is not one.
std::optional<std::int64_t> whole_number(std::string_view text);
// The parts of "a,b" between the separators.
std::vector<std::string> split_text(const std::string& text, char separator);

struct GridDimension {
  std::string key;
  std::vector<std::string> values;
};

// Parses the texts of --set (or another option), "model.layers=1,2". Throws UsageError for a missing or repeated key.
std::vector<GridDimension> parse_grid(const std::vector<std::string>& texts, std::string_view option = "--set");

// Every combination of one value per key. Keys keep the given order, and the last one changes first. Without dimensions
// there is one empty combination.
using Settings = std::vector<std::pair<std::string, std::string>>;
std::vector<Settings> combinations(const std::vector<GridDimension>& dimensions);

class ConfigOptions {
 public:
  // Declares the options on `line`. It first looks ahead in the words after the command, because task and encodings
  // bring options of their own. Without a task the help shows the options of flip-flop. `several` allows a list of
  // encodings, "cope,rope,cope+rope", and declares the options of each. The seed is then omitted, because a sweep has
  // its own list of seeds.
  static std::shared_ptr<ConfigOptions> declare(CommandLine& line, bool several = false);
  // Declares only the options of a given configuration whose full names `wanted` accepts. `needs`: as in Rules.
  using Wanted = std::function<bool(std::string_view name)>;
  static std::shared_ptr<ConfigOptions> declare_for(
      CommandLine& line, const RunConfig& config, const Wanted& wanted = [](std::string_view) { return true; },
      const std::vector<std::string>& needs = {});
  // Declares only the options of these encodings, for commands that inspect encodings and train nothing. Empty names
  // bring no options.
  static std::shared_ptr<ConfigOptions> declare_for_encodings(CommandLine& line, const std::vector<std::string>& names);

  // Applies the preset, then the file of --config, then single options. Throws UsageError for invalid combinations.
  RunConfig resolve() const;
  // The same with one encoding of a list, if more settings are still to be applied. Options of parts that it does not
  // have are left out. `check_whole` later validates the complete configuration.
  RunConfig begin(const std::string& encoding) const;
  // Throws UsageError for an invalid combination, naming the file of --config.
  void check_whole(const RunConfig& config) const;
  // Whether no option was given.
  bool names_nothing() const {
    return task_.empty() && encoding_.empty() && preset_.empty() && file_.empty() && settings_.empty();
  }
  // The encodings of a list. Throws UsageError when there is none.
  std::vector<std::string> encodings() const;
  // One of the declared encodings with the given options. Throws UsageError for invalid values.
  EncodingChoice encoding(const std::string& name) const;
  // Applies the single options to another configuration. Options of listed encodings that this one does not have are
  // skipped.
  void apply(RunConfig& config) const;
  // The run whose settings all others start from, as given; empty without --from.
  const std::string& from() const { return from_; }
  // The given options of encodings: "cope.p-max".
  std::vector<std::string> given_of_encodings() const;

 private:
  // Calls f. Puts the file of --config, if there is one, in front of an Error that f throws.
  template <class F>
  auto blaming_file(F&& f) const {
    return file_.empty() ? f() : in_file(file_, f);
  }
  // The default of --pe: "none" for a model that does not use encodings, else nothing.
  std::string missing_encoding() const;
  void declare_fields(CommandLine& line, const RunConfig& given, const Wanted& wanted,
                      const std::vector<std::string>& needs = {});

  std::string task_, encoding_, preset_, file_, from_;         // encoding_ as given, perhaps a list
  std::vector<std::pair<std::string, std::string>> settings_;  // in the order given
};

// The elements of "cope,rope". An encoding by layer or head contains commas, so it is a single element, or semicolons
// separate several.
std::vector<std::string> split_encodings(const std::string& text);
// A combination with every part of the encodings, and thus with all their options. Empty names are left out.
std::string sum_of(const std::vector<std::string>& encodings);

// The configuration as lines of text, "Model      model.width=64 ...". Without `all`, only settings that differ from
// the defaults of task and encoding.
std::string config_text(const RunConfig& config, bool all);

}  // namespace tally

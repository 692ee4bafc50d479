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
#include "tasks/command_line/command.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {

class ConfigOptions {
 public:
  // Declares the options on `line`. The words behind the command are looked through first, because task and encodings
  // bring options of their own; without a task the help shows those of flip-flop.
  // several: with a list of encodings, "cope,rope,cope+rope", options are those of all of them, but for the seed, which
  // a sweep has a list of too. There may be a --suite then instead of a task with its preset; options of a
  // task are those that all of its tasks have.
  static std::shared_ptr<ConfigOptions> declare(CommandLine& line, bool several = false);
  // Declares the options of a given configuration alone, and of these only those whose full names are wanted.
  using Wanted = std::function<bool(std::string_view name)>;
  static std::shared_ptr<ConfigOptions> declare_for(
      CommandLine& line, const RunConfig& config, const Wanted& wanted = [](std::string_view) { return true; });
  // Declares the options of these encodings alone, for what looks at encodings and trains nothing; empty ones bring
  // none.
  static std::shared_ptr<ConfigOptions> declare_for_encodings(CommandLine& line, const std::vector<std::string>& names);

  // Preset, then the file of --config, then single options. Throws UsageError for what does not fit.
  RunConfig resolve() const;
  // The same with one encoding of a list, where further settings come that are part of the whole: options of parts that
  // it does not have are left out, and it is left to `check_whole` whether all of it fits together.
  RunConfig begin(const std::string& encoding) const;
  // The same of a preset, where the command line names no task.
  RunConfig begin(const std::string& encoding, const PresetEntry& preset) const;
  // Throws UsageError for what does not fit together, naming the file or, where there is one, the preset of a suite.
  void check_whole(const RunConfig& config, const PresetEntry* of_suite = nullptr) const;
  // The name of the suite that --suite gives; empty without one.
  const std::string& suite() const { return suite_; }
  // Whether no option was given.
  bool names_nothing() const {
    return task_.empty() && encoding_.empty() && preset_.empty() && file_.empty() && suite_.empty() &&
           settings_.empty();
  }
  // The encodings of a list. Throws UsageError when there is none.
  std::vector<std::string> encodings() const;
  // One of the encodings that were declared for, as the options have it. Throws UsageError for what does not fit.
  EncodingChoice encoding(const std::string& name) const;
  // Applies the single options to another configuration; those of encodings that a list has and this one has not are
  // left out.
  void apply(RunConfig& config) const;
  // The single options by their full names, in the order given.
  const std::vector<std::pair<std::string, std::string>>& given() const { return settings_; }
  // Those of encodings: "cope.p-max".
  std::vector<std::string> given_of_encodings() const;
  // Calls f; the file of --config, if there is one, is named in an Error that it throws.
  template <class F>
  auto blaming_file(F&& f) const {
    const std::string blame = file_.empty() ? "" : file_ + ": ";
    try {
      return f();
    } catch (const DamagedText&) {
      throw;
    } catch (const UsageError& error) {
      throw UsageError(blame + error.what());
    } catch (const Error& error) {
      throw Error(blame + error.what());
    }
  }

 private:
  // What stands for --pe where it is missing: "none" for a model that has no use for one, else nothing.
  std::string missing_encoding() const;
  void declare_fields(CommandLine& line, const RunConfig& given, const Wanted& wanted);

  std::string task_, encoding_, preset_, file_, suite_;        // encoding_ as given, perhaps a list
  std::vector<std::pair<std::string, std::string>> settings_;  // in the order given
};

// The elements of "cope,rope". An encoding by layer or head has commas of its own: then there is one element, or
// semicolons stand between several.
std::vector<std::string> split_encodings(const std::string& text);
// A sum with every part of the encodings: it has all their options. Empty ones are left out.
std::string sum_of(const std::vector<std::string>& encodings);

// The configuration as lines of text: "Model: model.width=64 ...".
std::string config_text(const RunConfig& config);

}  // namespace tally

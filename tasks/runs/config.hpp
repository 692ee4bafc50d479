// The configuration of a run: task, encoding, model, optimiser and schedule, with every option by name. It is what
// config.json holds, enough to rebuild the run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "tasks/data/task.hpp"

namespace tally {

class JsonValue;

struct RunOptions final : OptionsOf<RunOptions> {
  std::int64_t steps = 1000;
  std::int64_t batch = 16;
  std::int64_t micro_batch = 0;    // sequences of it at once; 0: all of them, or as micro_batches says
  std::int64_t micro_batches = 0;  // parts of it that are computed one after the other; 0: as micro_batch says
  std::int64_t eval_every = 0;     // 0: at the end alone
  std::int64_t save_every = 0;     // 0: with every evaluation
  std::int64_t log_every = 10;     // steps between lines about training in metrics.jsonl
  std::int64_t eval_batch = 64;
  std::int64_t eval_count = 0;  // sequences of each split while training; 0: all of the split. The last counts all.
  bool eval_generated = false;  // at the end also answers that are fed back
  std::int64_t seed = 1;        // start values, training stream, dropout
  std::int64_t data_seed = 0;   // evaluation sets and fixed training sets
  std::string dtype = "f32";    // f32, f64
  std::string train = "all";    // parameters, by patterns of their names (nn/parameter_choice.hpp)

  void visit(OptionVisitor& visitor) override;
  // Sequences of a step that are computed at once; 0: all of them.
  std::int64_t at_once() const { return micro_batches > 0 ? (batch + micro_batches - 1) / micro_batches : micro_batch; }
};

// What a file says of update rules that it did not choose, which has no effect: runs of the first versions have it.
enum class OtherRules { refuse, leave_out };

struct RunConfig {
  std::string preset;  // for the record; empty for none
  const TaskEntry* task = nullptr;
  std::unique_ptr<Options> task_options;
  EncodingChoice encoding;
  ModelOptions model;
  OptimizerOptions optimiser;
  RunOptions run;

  // Defaults for a task and an encoding, then the preset's settings if one is named (those of encodings that are not
  // chosen are left out).
  static RunConfig make(std::string_view task, std::string_view encoding, std::string_view preset = {});
  RunConfig clone() const;

  // One option from text by its full name: "task.length", "model.width", "optimiser.lr", "pe.cope.p-max", "pe.p-max",
  // "steps", or by the short name of a field. Throws Error naming option and nearest name.
  void set(std::string_view name, std::string_view value);

  // Throws Error when parts do not fit together.
  void validate() const;
  // Throws Error for an option that has no effect beside the others, if somebody asked for it: it has neither its
  // default nor what the preset chose nor, if given, the value that it had before.
  void refuse_idle(const RunConfig* before = nullptr) const;

  // Options in groups, for help and printing. `prefix` ends in a point or is empty: "model.", "pe.cope.", "".
  struct Group {
    std::string title;
    std::string prefix;
    std::vector<OptionInfo> options;
    std::vector<OptionInfo> others = {};  // of update rules that were not chosen
  };
  std::vector<Group> groups() const;

  // One option with the names that it goes by.
  struct Field {
    std::string name;   // "model.width", "pe.cope.p-max", "steps"
    std::string alias;  // "width", "pe.p-max"; empty for none
    std::string title;  // of its group; empty for an option that could only be refused
    OptionInfo option;
  };
  std::vector<Field> fields() const;
  // Whether `set` knows the name, or would but for the encoding that it has to say.
  bool has(std::string_view name) const;

  // {"format": 1, "preset": "quick", "task": {"name": "flip-flop", ...}, "pe": "cope", "pe-options": {"cope": {...}},
  //  "model": {...}, "optimiser": {...}, "run": {...}}
  JsonValue to_json() const;
  // Strict: throws Error for unknown names and values that do not fit. Options that are not named keep the values that
  // `make` gives, so a hand-written file may be short; "task" and "pe" are needed. Whether all fits together is asked
  // with validate(), once single options have been set too.
  static RunConfig from_json(const JsonValue& json, OtherRules other_rules = OtherRules::refuse);

  std::unique_ptr<Task> make_task() const;
  // Start values from the run's seed.
  std::unique_ptr<SequenceModel> make_model(const Task& task) const;
  // The same with the paths of another's task (tasks/runs/task_paths.hpp): its files lie there now.
  RunConfig with_paths_of(const RunConfig& other) const;
  // What runs are compared by: the encoding, or the kind of a model that has no use for one.
  std::string label() const { return model.is_transformer() ? encoding.text() : model.kind; }
  DType dtype() const { return run.dtype == "f64" ? DType::f64 : DType::f32; }
  // Steps between evaluations and between checkpoints as they are used.
  std::int64_t eval_interval() const { return run.eval_every > 0 ? run.eval_every : run.steps; }
  std::int64_t save_interval() const { return run.save_every > 0 ? run.save_every : eval_interval(); }
};

// What to say of an option that a configuration does not have: "; did you mean 'model.width'?" also for 'widht', or
// where all of them are listed.
std::string did_you_mean_option(const RunConfig& config, std::string_view name);

// Calls f; an Error that it throws gets the file in front that is to blame.
template <class F>
auto in_file(const std::string& path, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw Error(concat(path, ": ", error.what()));
  }
}

// Names of the options whose values differ between two configurations: "model.width 64 -> 128".
std::vector<std::string> differences(const RunConfig& before, const RunConfig& after);

}  // namespace tally

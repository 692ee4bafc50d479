// The configuration of a run: task, encoding, model, optimiser and schedule, with every option by name. config.json
// holds it, and it is enough to rebuild the run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "tasks/data/task.hpp"

namespace tally {

// Finds the option that an unknown name probably means.

// "optimizer.lr" -> "optimiser.lr": both spellings name the same option.
std::string option_spelling(std::string_view name);

// Returns the option of `known` that `name` probably means, both without leading dashes, or an empty string. Compares
// the last part of dotted names, then the names of nanoGPT, LitGPT, Hugging Face and PyTorch, then edit distances.
std::string meant_option(std::string_view name, const std::vector<std::string>& known);

class JsonValue;

struct RunOptions final : OptionsOf<RunOptions> {
  std::int64_t steps = 1000;
  std::int64_t batch = 16;
  std::int64_t micro_batch = 0;    // sequences of it at once; 0: all, or as micro_batches specifies
  std::int64_t micro_batches = 0;  // parts of it, computed one after the other; 0: as micro_batch specifies
  std::int64_t eval_every = 0;     // 0: only at the end
  std::int64_t save_every = 0;     // 0: with every evaluation
  std::int64_t log_every = 10;     // steps between training records in metrics.jsonl
  std::int64_t eval_batch = 64;
  std::int64_t eval_count = 0;  // sequences of each split while training; 0: all. The last evaluation uses all.
  bool eval_generated = false;  // at the end, also evaluate generated answers
  std::int64_t seed = 1;        // seed of initial values, training data and dropout
  std::int64_t data_seed = 0;   // seed of evaluation sets and fixed training sets
  std::string dtype = "f32";    // f32, f64
  std::string random_positions = "none";  // none, integers, reals (nn/encoding/random_positions.hpp)
  std::int64_t position_range = 0;        // 0: the longest sequence of any split
  bool eval_random_positions = false;
  std::string train = "all";  // trained parameters, by patterns of their names (nn/parameter_choice.hpp)

  void visit(OptionVisitor& visitor) override;
  // Sequences of a step that are computed at once; 0: all.
  std::int64_t at_once() const { return micro_batches > 0 ? (batch + micro_batches - 1) / micro_batches : micro_batch; }
};

// The finished run whose weights another run starts with.
struct WeightsOrigin {
  std::string run;  // its folder, absolute
  std::int64_t step = 0;
  std::string label;  // RunConfig::label of that run
};

struct RunConfig {
  std::string preset;  // for the record; empty for none
  const TaskEntry* task = nullptr;
  std::unique_ptr<Options> task_options;
  EncodingChoice encoding;
  ModelOptions model;
  OptimizerOptions optimiser;
  RunOptions run;
  std::optional<WeightsOrigin> origin;  // without one, start values come from the seed

  // Defaults for a task and an encoding, then the preset's settings if one is named. Settings for encodings that were
  // not chosen are left out.
  static RunConfig make(std::string_view task, std::string_view encoding, std::string_view preset = {});
  RunConfig clone() const;

  // Sets one option from text by its full name: "task.length", "model.width", "optimiser.lr", "pe.cope.p-max",
  // "pe.p-max", "steps"; or by the short name of a field. Throws Error naming the option and the nearest name.
  void set(std::string_view name, std::string_view value);

  // Shortens the warm-up of the preset in proportion if the run has fewer steps than that. Keeps a warm-up that was
  // set.
  void shorten_warmup();
  // "note: the warm-up of preset quick, 100 steps, is shortened ..." if shorten_warmup did that, else an empty string.
  std::string warmup_note() const;
  // Throws Error if options do not fit together.
  void validate() const;
  // Throws Error for an option that was set but has no effect with the others. An option counts as set if it has
  // neither its default, nor the preset's value, nor, if `before` is given, its value there.
  void refuse_idle(const RunConfig* before = nullptr) const;

  // Options in groups, for help and printing. `prefix` ends in a point or is empty: "model.", "pe.cope.", "".
  struct Group {
    std::string title;
    std::string prefix;
    std::vector<OptionInfo> options;
    std::vector<OptionInfo> others = {};  // of update rules that were not chosen
  };
  std::vector<Group> groups() const;

  // One option with its names.
  struct Field {
    std::string name;   // "model.width", "pe.cope.p-max", "steps"
    std::string alias;  // "width", "pe.p-max"; empty for none
    std::string title;  // of its group; empty for an option that would always be refused
    OptionInfo option;
  };
  std::vector<Field> fields() const;
  // Whether `set` knows the name, or would if the name included the encoding.
  bool has(std::string_view name) const;

  // {"format": 1, "preset": "quick", "task": {"name": "flip-flop", ...}, "pe": "cope", "pe-options": {"cope": {...}},
  //  "model": {...}, "optimiser": {...}, "run": {...}, "from": {...} with an origin}
  JsonValue to_json() const;
  // Strict: throws Error for unknown names and values of the wrong kind. Missing options keep the values that `make`
  // gives, so a hand-written file may be short; "task" and "pe" are required. Call validate() after all single options
  // are set: it checks that they fit together.
  static RunConfig from_json(const JsonValue& json);

  std::unique_ptr<Task> make_task() const;
  // The positions that training draws; nothing if they are consecutive. Throws Error if the range is too small.
  std::optional<RandomPositions> random_positions(const Task& task) const;
  // The longest sequence that the model must support, counted by its positions.
  std::int64_t longest(const Task& task) const;
  // Start values come from the run's seed.
  std::unique_ptr<SequenceModel> make_model(const Task& task) const;
  // The same, with the task paths of another configuration (tasks/data/task.hpp), because the files have moved.
  RunConfig with_paths_of(const RunConfig& other) const;
  // The label by which runs are compared: the encoding, or the kind of a model without encodings; "none from rope" if
  // the weights come from another run.
  std::string label() const;
  DType dtype() const { return run.dtype == "f64" ? DType::f64 : DType::f32; }
  // Steps between evaluations and between checkpoints, with defaults applied.
  std::int64_t eval_interval() const { return run.eval_every > 0 ? run.eval_every : run.steps; }
  std::int64_t save_interval() const { return run.save_every > 0 ? run.save_every : eval_interval(); }
};

// A hint for an unknown option: "; did you mean 'model.width'?" for 'widht', or where all options are listed.
std::string did_you_mean_option(const RunConfig& config, std::string_view name);

// Calls f. Puts the path of the file in front of an Error that f throws.
template <class F>
auto in_file(const std::string& path, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw Error(formatted("{}: {}", path, error.what()));
  }
}

// Names of the options whose values differ between two configurations: "model.width 64 -> 128".
std::vector<std::string> differences(const RunConfig& before, const RunConfig& after);

}  // namespace tally

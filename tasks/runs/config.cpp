#include "tasks/runs/config.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "core/precision.hpp"
#include "nn/options.hpp"
#include "tasks/data/task.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }  // npos + 1 is 0

}  // namespace

std::string option_spelling(std::string_view name) {
  constexpr std::string_view american = "optimizer";
  std::string text(name);
  if (const std::size_t at = text.find(american); at != std::string::npos)
    text.replace(at, american.size(), "optimiser");
  return text;
}

std::string meant_option(std::string_view given, const std::vector<std::string>& known) {
  constexpr std::size_t longest = 100;  // a name may come from a file
  std::string name = option_spelling(given.substr(0, longest));
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
  const std::string_view last = last_part(name);
  const auto by_last_part = [&](std::string_view wanted) {
    if (std::ranges::count(known, wanted) > 0) return std::string(wanted);  // the short name
    const auto found = std::ranges::find(known, wanted, [](std::string_view option) { return last_part(option); });
    return found == known.end() ? std::string() : *found;
  };
  if (const std::string same = by_last_part(last); !same.empty()) return same;
  // A line of the file: "length: seq-len block-size".
  std::istringstream lines{std::string(data_file("option_names.txt"))};
  for (std::string line; std::getline(lines, line);) {
    if ((line + " ").find(formatted(" {} ", last)) == std::string::npos) continue;
    if (const std::string other = by_last_part(line.substr(0, line.find(':'))); !other.empty()) return other;
  }
  if (const std::string near = nearest_name(name, known); !near.empty()) return near;
  std::vector<std::string> last_parts;
  for (const std::string& option : known) last_parts.emplace_back(last_part(option));
  return by_last_part(nearest_name(last, last_parts));
}

namespace {

JsonValue json_of(const OptionValue& value) {
  return std::visit([](const auto& v) { return JsonValue(v); }, value);
}

JsonValue json_of(const std::vector<OptionInfo>& options) {
  JsonValue object = JsonValue::object();
  for (const OptionInfo& option : options) object.set(option.name, json_of(option.value));
  return object;
}

std::vector<OptionInfo> options_of(const Options& options) {
  const auto copy = options.clone();
  return list_options(*copy);
}

// A JSON value as the text that set_option reads. The kinds of value and option must match: "64" is not a number.
std::string text_of(const JsonValue& value, const OptionValue& option, std::string_view name) {
  constexpr std::string_view kinds[] = {"true or false", "an integer", "a number", "a string"};
  const bool fits =
      value.kind() == json_of(option).kind() || (value.is_integer() && std::holds_alternative<double>(option));
  check(fits, "config", "'{}' must be {}, not {}", name, kinds[option.index()], value.kind());
  return value.is_string() ? value.string() : write_json(value);
}

const OptionInfo* find_option(const std::vector<OptionInfo>& options, std::string_view name) {
  const auto found = std::ranges::find(options, name, &OptionInfo::name);
  return found != options.end() ? &*found : nullptr;
}

// Sets the options of the group with this prefix ("model.") from the members of an object of the file.
void set_members(RunConfig& config, const std::string& key, const std::string& prefix, const JsonValue& object) {
  check(object.is_object(), "config", "'{}' must be an object, not {}", key, object.kind());
  const auto find_group = [&] {
    std::vector<RunConfig::Group> groups = config.groups();
    const auto group = std::ranges::find(groups, prefix, &RunConfig::Group::prefix);
    check(group != groups.end(), "config", "'{}' is for an encoding that is not part of {}", key,
          config.encoding.text());
    return std::move(*group);
  };
  RunConfig::Group group = find_group();
  const auto set = [&](const JsonMember& member) {
    const OptionInfo* option = find_option(group.options, member.name);
    if (option == nullptr) option = find_option(group.others, member.name);
    if (option == nullptr) {
      std::vector<std::string> known;
      for (const OptionInfo& one : group.options) known.push_back(formatted("{}.{}", key, one.name));
      const std::string name = formatted("{}.{}", key, member.name);
      fail("config", "unknown key '{}'{}", name, did_you_mean(name, known));
    }
    config.set(prefix + member.name, text_of(member.value, option->value, formatted("{}.{}", key, member.name)));
  };
  // The name determines which options the others are.
  if (key == "optimiser" && object.contains("name")) {
    set({"name", object.at("name")});
    group = find_group();
  }
  for (const JsonMember& member : object.members()) set(member);
}

// The option's value as text; empty if there is no such option.
std::string value_in(const RunConfig& config, std::string_view name) {
  const std::vector<RunConfig::Field> fields = config.fields();
  const auto field = std::ranges::find(fields, name, &RunConfig::Field::name);
  return field == fields.end() ? "" : to_text(field->option.value);
}

bool starts_any(std::string_view name, std::string_view prefix, std::string_view& rest) {
  if (!name.starts_with(prefix)) return false;
  rest = name.substr(prefix.size());
  return true;
}

}  // namespace

void RunOptions::visit(OptionVisitor& visitor) {
  visitor.integer("steps", steps, "training steps", 1);
  visitor.integer("batch", batch, "sequences per step", 1, 1 << 20);
  visitor.integer("micro-batch", micro_batch,
                  "sequences in memory at once; gradients are accumulated over a step. 0: the whole batch", 0, 1 << 20);
  visitor.integer("micro-batches", micro_batches,
                  "alternative to micro-batch: number of equal parts of a step's batch; the last part may be smaller. "
                  "0: not used",
                  0, 1 << 20);
  visitor.integer("eval-every", eval_every, "steps between evaluations; 0: only at the end");
  visitor.integer("save-every", save_every, "steps between checkpoints; 0: with every evaluation");
  visitor.integer("log-every", log_every, "steps between training lines in metrics.jsonl", 1);
  visitor.integer(
      "eval-batch", eval_batch,
      "batch size of generated answers in evaluations. Losses are computed 1,024 tokens at a time; this does not "
      "change their bits",
      1, 1 << 20);
  visitor.integer("eval-count", eval_count,
                  "sequences of each split in all evaluations except the last; 0: the whole split");
  visitor.flag("eval-generated", eval_generated,
               "after the last evaluation, also let the model generate its answers, as 'tally eval --generate' does");
  visitor.integer("seed", seed, "seed of initial values, training data and dropout", 0);
  visitor.integer("data-seed", data_seed, "seed of evaluation sets and fixed training sets", 0);
  visitor.choice("dtype", dtype, {"f32", "f64"}, "type of all computations");
  visitor.choice("random-positions", random_positions, {"none", "integers", "reals"},
                 "draw sorted random positions for each training batch (arXiv 2305.16843 and 2602.14050)");
  visitor.integer("position-range", position_range,
                  "L, with random positions from 0 to less than L; 0: the longest sequence of any split", 0, 1 << 20);
  visitor.flag("eval-random-positions", eval_random_positions,
               "evaluations draw random positions, too: the same ones for all sequences of a length");
  visitor.text("train", train,
               "parameters to train: all, or name patterns such as 'pe.*,blocks.0.*'. The others stay unchanged");
}

RunConfig RunConfig::make(std::string_view task, std::string_view encoding, std::string_view preset) {
  RunConfig config;
  config.task = &find_task(task);
  config.task_options = config.task->make_options();
  config.encoding = EncodingChoice::parse(encoding);
  if (!preset.empty()) {
    config.preset = std::string(preset);
    apply_preset(find_preset(task, preset), config);
  }
  return config;
}

RunConfig RunConfig::clone() const {
  RunConfig copy;
  copy.preset = preset;
  copy.task = task;
  copy.task_options = task_options->clone();
  copy.encoding = encoding.clone();
  copy.model = model;
  copy.optimiser = optimiser;
  copy.run = run;
  copy.origin = origin;
  return copy;
}

std::string RunConfig::label() const {
  const std::string own = model.is_transformer() ? encoding.text() : model.kind;
  return origin ? formatted("{} from {}", own, origin->label) : own;
}

RunConfig RunConfig::with_paths_of(const RunConfig& other) const {
  RunConfig moved = clone();
  const std::vector<OptionInfo> theirs = options_of(*other.task_options);
  for (const std::string& name : path_options(*task, *moved.task_options)) {
    if (const OptionInfo* path = find_option(theirs, name)) moved.set("task." + name, to_text(path->value));
  }
  return moved;
}

void RunConfig::set(std::string_view name, std::string_view value) {
  std::string_view rest;
  if (starts_any(name, "task.", rest)) {
    const bool is_path = std::ranges::count(path_options(*task, *task_options), rest) > 0;
    set_option(*task_options, formatted("task {}", task->name), rest,
               is_path ? absolute_path(value) : std::string(value));
  } else if (starts_any(name, "model.", rest)) {
    set_option(model, "model", rest, value);
  } else if (starts_any(name, "optimiser.", rest)) {
    optimiser.set(rest, value);
  } else if (starts_any(name, "pe.", rest)) {
    encoding.set_option(rest, value);
  } else if (find_option(options_of(run), name) != nullptr) {
    set_option(run, "run", name, value);
  } else {
    const std::vector<Field> all = fields();
    const auto field = std::ranges::find(all, name, &Field::alias);
    check(field != all.end() && !name.empty(), "config", "unknown option '{}'{}", name,
          did_you_mean_option(*this, name));
    set(field->name, value);
  }
}

std::vector<RunConfig::Field> RunConfig::fields() const {
  // Short names; "pe.p-max" is one if only one encoding has it.
  static const std::map<std::string, std::string> short_names{
      {"task.length", "length"},         {"task.data", "data"},
      {"task.tokenizer", "tokenizer"},   {"task.vocabulary", "vocabulary"},
      {"task.token-type", "token-type"}, {"task.end-token", "end-token"},
      {"model.layers", "layers"},        {"model.width", "width"},
      {"model.heads", "heads"},          {"optimiser.lr", "lr"}};
  std::vector<Field> result;
  std::map<std::string, int> holders;
  for (const Group& group : groups()) {
    for (const OptionInfo& option : group.options) {
      Field field{group.prefix + option.name, "", group.title, option};
      if (const auto known = short_names.find(field.name); known != short_names.end()) field.alias = known->second;
      if (group.prefix.starts_with("pe.")) ++holders[field.alias = "pe." + option.name];
      result.push_back(std::move(field));
    }
    for (const OptionInfo& option : group.others) result.push_back({group.prefix + option.name, "", "", option});
  }
  for (Field& field : result) {
    if (holders[field.alias] > 1) field.alias.clear();
  }
  return result;
}

bool RunConfig::has(std::string_view name) const {
  return std::ranges::any_of(fields(), [&](const Field& field) {
    return name == field.name || (name == field.alias && !name.empty()) ||
           (field.name.starts_with("pe.") && name == "pe." + field.option.name);
  });
}

std::string did_you_mean_option(const RunConfig& config, std::string_view name) {
  std::vector<std::string> all;
  for (const RunConfig::Group& group : config.groups()) {
    for (const OptionInfo& option : group.options) all.push_back(group.prefix + option.name);
  }
  const std::string meant = meant_option(name, all);
  if (meant.empty()) return "; 'tally train --help' with this task and encoding lists all";
  return formatted("; did you mean '{}'?", meant);
}

namespace {

// The warm-up of a preset for a run of `steps` steps.
std::int64_t warmup_of(const RunConfig& preset, std::int64_t steps) {
  const std::int64_t warmup = preset.optimiser.warmup;
  return warmup <= steps ? warmup : std::max<std::int64_t>(1, warmup * steps / preset.run.steps);
}

}  // namespace

void RunConfig::shorten_warmup() {
  if (preset.empty() || optimiser.warmup <= run.steps) return;
  const RunConfig of_preset = make(task->name, encoding.text(), preset);
  if (optimiser.warmup == of_preset.optimiser.warmup) optimiser.warmup = warmup_of(of_preset, run.steps);
}

std::string RunConfig::warmup_note() const {
  if (preset.empty()) return "";
  const RunConfig of_preset = make(task->name, encoding.text(), preset);
  const std::int64_t usual = of_preset.optimiser.warmup;
  if (usual <= run.steps || optimiser.warmup != warmup_of(of_preset, run.steps)) return "";
  return formatted("note: the warm-up of preset {}, {} steps, is shortened to {} for a run of {}", preset, usual,
                   optimiser.warmup, run.steps);
}

void RunConfig::validate() const {
  check_model(model, encoding);
  check(run.micro_batch <= run.batch, "run", "micro-batch {} is more than the batch of {}", run.micro_batch, run.batch);
  if (run.micro_batches > 0) {
    check(run.micro_batch == 0, "run", "micro-batch {} and micro-batches {} say the same of a batch; give one of them",
          run.micro_batch, run.micro_batches);
    const std::int64_t parts = (run.batch + run.at_once() - 1) / run.at_once();
    check(parts == run.micro_batches, "run",
          "a batch of {} has no {} micro-batches of one size; with {} sequences each there are {}", run.batch,
          run.micro_batches, run.at_once(), parts);
  }
  optimiser.validate();
  check(optimiser.warmup <= run.steps, "optimiser",
        "warmup {} is longer than the run of {} steps; a shorter one is set with --optimiser.warmup", optimiser.warmup,
        run.steps);
  const std::int64_t cooldown = cooldown_steps(optimiser, run.steps);
  check(optimiser.warmup + cooldown <= run.steps, "optimiser",
        "warmup {} and a cooldown of {} steps are longer than the run of {} steps; shorter ones are set with "
        "--optimiser.warmup and --optimiser.cooldown",
        optimiser.warmup, cooldown, run.steps);
}

void RunConfig::refuse_idle(const RunConfig* before) const {
  const auto refuse = [&](std::string_view where, std::string_view name, std::string_view why) {
    const std::string value = value_in(*this, name);
    const auto made_with = [&](std::string_view of) { return value_in(make(task->name, encoding.text(), of), name); };
    if (value == made_with({}) || value == made_with(preset)) return;
    if (before != nullptr && value == value_in(*before, name)) return;
    fail(where, "{} = {} has no effect {}", name.substr(name.find('.') + 1), value, why);
  };
  for (const std::string& name : model.idle())
    refuse("model", "model." + name, formatted("with kind = {}", model.kind));
  if (optimiser.weight_decay == 0) refuse("optimiser", "optimiser.decay", "with weight-decay = 0");
  if (optimiser.schedule == "constant") refuse("optimiser", "optimiser.lr-floor", "with schedule = constant");
  if (cooldown_steps(optimiser, run.steps) == 0) {
    const std::string beside = formatted("with schedule = {}", optimiser.schedule);
    if (optimiser.schedule != "inverse-root") {
      refuse("optimiser", "optimiser.cooldown", beside + "; it is for wsd and inverse-root");
    }
    refuse("optimiser", "optimiser.cooldown-shape", beside + " and no cooldown");
  }
  check(dtype() != DType::f64 || matmul_precision() == MatmulPrecision::f32, "run",
        "--precision {} has no effect with dtype = f64: it rounds products of f32",
        matmul_precision_names[static_cast<std::size_t>(matmul_precision())]);
  if (run.random_positions == "none") {
    refuse("run", "position-range", "with random-positions = none");
    refuse("run", "eval-random-positions", "with random-positions = none");
  }
  if (run.eval_every == 0) refuse("run", "eval-count", "with eval-every = 0: the last evaluation counts all");
}

std::vector<RunConfig::Group> RunConfig::groups() const {
  std::vector<Group> result;
  result.push_back({"Run", "", options_of(run)});
  result.push_back({formatted("Task {}", task->name), "task.", options_of(*task_options)});
  for (const auto& part : encoding.parts) {
    result.push_back(
        {formatted("Encoding {}", part.entry->name), formatted("pe.{}.", part.entry->name), options_of(*part.options)});
  }
  result.push_back({"Model", "model.", options_of(model)});
  result.push_back({"Optimiser", "optimiser.", options_of(optimiser), optimiser.others()});
  return result;
}

JsonValue RunConfig::to_json() const {
  JsonValue task_json = JsonValue::object({{"name", task->name}});
  for (const OptionInfo& option : options_of(*task_options)) task_json.set(option.name, json_of(option.value));
  JsonValue encoding_json = JsonValue::object();
  for (const auto& part : encoding.parts) encoding_json.set(part.entry->name, json_of(options_of(*part.options)));
  JsonValue json = JsonValue::object({{"format", 1},
                                      {"preset", preset},
                                      {"task", std::move(task_json)},
                                      {"pe", encoding.text()},
                                      {"pe-options", std::move(encoding_json)},
                                      {"model", json_of(options_of(model))},
                                      {"optimiser", json_of(options_of(optimiser))},
                                      {"run", json_of(options_of(run))}});
  if (origin) {
    json.set("from", JsonValue::object({{"run", origin->run}, {"step", origin->step}, {"label", origin->label}}));
  }
  return json;
}

RunConfig RunConfig::from_json(const JsonValue& json) {
  // Only the run folder uses "imported".
  check_keys("config", json,
             {"format", "preset", "task", "pe", "pe-options", "model", "optimiser", "run", "from", "imported"});
  if (json.contains("format")) {
    check(json.integer("format") == 1, "config", "format {} is not one this version reads (1)", json.integer("format"));
  }
  const std::string preset = json.contains("preset") ? json.string("preset") : "";
  check(json.at("task").is_object(), "config", "'task' must be an object with a name, not {}", json.at("task").kind());
  RunConfig config = make(json.at("task").string("name"), json.string("pe"), preset);
  JsonValue task_options = json.at("task");
  task_options.remove("name");
  const auto set = [&](const std::string& key, const std::string& prefix, const JsonValue& object) {
    set_members(config, key, prefix, object);
  };
  set("task", "task.", task_options);
  if (json.contains("pe-options")) {
    for (const JsonMember& part : json.members("pe-options")) {
      set(formatted("pe-options.{}", part.name), formatted("pe.{}.", part.name), part.value);
    }
  }
  if (json.contains("model")) set("model", "model.", json.at("model"));
  if (json.contains("optimiser")) set("optimiser", "optimiser.", json.at("optimiser"));
  if (json.contains("run")) set("run", "", json.at("run"));
  if (const JsonValue* from = json.find("from")) {
    config.origin = {from->string("run"), from->integer("step"), from->string("label")};
  }
  return config;
}

std::unique_ptr<Task> RunConfig::make_task() const {
  return task->make(*task_options, static_cast<std::uint64_t>(run.seed), static_cast<std::uint64_t>(run.data_seed));
}

namespace {

std::int64_t range_of(const RunOptions& run, const Task& task) {
  return run.position_range > 0 ? run.position_range : task.max_length();
}

}  // namespace

std::optional<RandomPositions> RunConfig::random_positions(const Task& instance) const {
  if (run.random_positions == "none") return std::nullopt;
  const std::int64_t length = instance.splits().front().length, range = range_of(run, instance);
  check(range > length, "run",
        "random-positions = {} has no effect on sequences of {} tokens with a position-range of {}; choose a larger "
        "--position-range",
        run.random_positions, length, range);
  return RandomPositions{run.random_positions == "integers", range};
}

std::int64_t RunConfig::longest(const Task& instance) const {
  return std::max(instance.max_length(), run.random_positions == "none" ? 0 : range_of(run, instance));
}

std::unique_ptr<SequenceModel> RunConfig::make_model(const Task& instance) const {
  std::unique_ptr<SequenceModel> made =
      tally::make_model(model, encoding, static_cast<std::int64_t>(instance.vocabulary().size()), longest(instance),
                        static_cast<std::uint64_t>(run.seed), dtype(), default_device());
  if (run.eval_random_positions) {
    made->evaluation_positions = RandomPositions{run.random_positions == "integers", range_of(run, instance)};
  }
  return made;
}

std::vector<std::string> differences(const RunConfig& before, const RunConfig& after) {
  std::vector<std::string> result;
  if (before.task != after.task) result.push_back(formatted("task {} -> {}", before.task->name, after.task->name));
  if (before.encoding.text() != after.encoding.text()) {
    result.push_back(formatted("pe {} -> {}", before.encoding.text(), after.encoding.text()));
  }
  const auto old_groups = before.groups();
  const auto new_groups = after.groups();
  for (const auto& group : new_groups) {
    for (const auto& old_group : old_groups) {
      if (old_group.prefix != group.prefix || old_group.title != group.title) continue;
      for (const OptionInfo& option : group.options) {
        const OptionInfo* const old = find_option(old_group.options, option.name);
        const std::string from = old != nullptr ? to_text(old->value) : "none", to = to_text(option.value);
        if (from != to) result.push_back(formatted("{}{} {} -> {}", group.prefix, option.name, from, to));
      }
    }
  }
  return result;
}

}  // namespace tally

// tally describe: lists all tasks, encodings, optimisers and presets. Describes one of them or a file. Prints
// sequences of a task.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "core/utf8.hpp"
#include "nn/optimizer.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

struct TaskSequences {
  std::string preset, split = "train", out;
  std::int64_t count = 0, start = 0;
  // The configuration of the task that the command line names; null if it names none.
  std::shared_ptr<RunConfig> config = {};
  std::shared_ptr<ConfigOptions> options = {};

  // Declares --sequences, and the options that need it: of the split, the file and the task.
  static std::shared_ptr<TaskSequences> declare(CommandLine& line);
  // Prints or writes `count` sequences of the task.
  Result print(const std::string& task, bool as_json) const;
};

template <class T>
JsonValue json_array(const std::vector<T>& values) {
  JsonValue array = JsonValue::array();
  for (const T value : values) array.push(JsonValue(static_cast<std::int64_t>(value)));
  return array;
}

std::string json_line(const Task& task, const Example& example, std::int64_t index) {
  return write_json(JsonValue::object({{"index", index},
                                       {"text", task.text(example)},
                                       {"tokens", json_array(example.tokens)},
                                       {"targets", json_array(example.targets)},
                                       {"loss_mask", json_array(example.loss_mask)},
                                       {"score_mask", json_array(example.score_mask)}}));
}

void write_tokens(const TaskSequences& settings, const Task& task) {
  const std::int64_t count = settings.count;
  const auto length = static_cast<std::int64_t>(task.example(settings.split, settings.start).tokens.size());
  MemoryEstimate estimate;
  estimate.data = static_cast<double>(size_of(DType::i32)) * static_cast<double>(count) * static_cast<double>(length);
  check_fits(estimate, "write fewer sequences");
  const Tensor tokens = Tensor::empty({count, length}, DType::i32);
  auto row = tokens.span<std::int32_t>().begin();
  for (std::int64_t n = 0; n < count; ++n) {
    const Example example = task.example(settings.split, settings.start + n);
    check(static_cast<std::int64_t>(example.tokens.size()) == length, "describe",
          "sequence {} has {} tokens, sequence {} has {}: .npy needs equal lengths", settings.start, length,
          settings.start + n, example.tokens.size());
    row = std::copy(example.tokens.begin(), example.tokens.end(), row);
  }
  write_npy(settings.out, tokens);
}

std::shared_ptr<TaskSequences> TaskSequences::declare(CommandLine& line) {
  const auto settings = std::make_shared<TaskSequences>();
  line.add("--sequences", &settings->count, "of a task: print this many of its sequences, one a line",
           {.group = "Sequences", .least = 1, .most = endless_count});
  const Rules rules{.group = "Sequences", .needs = {"--sequences"}};
  const auto is_task = [](const std::string& word) {
    return std::ranges::any_of(task_registry(), [&](const TaskEntry* entry) { return entry->name == word; });
  };
  const auto task = std::ranges::find_if(line.words(), is_task);
  const bool is_known = task != line.words().end();
  line.add("--preset", &settings->preset,
           formatted("settings of the task: {}", preset_names(is_known ? *task : std::string())), rules);
  line.add("--split", &settings->split, "train, in-distribution, ...", rules);
  line.add("--start", &settings->start, "number of the first sequence",
           {.group = rules.group, .least = 0, .most = endless_count - 1, .needs = rules.needs});
  line.add("--out", &settings->out, "file to write, .npy: tokens i32 [sequences, tokens]", rules);
  if (!is_known) return settings;
  settings->config = std::make_shared<RunConfig>(
      as_usage([&] { return RunConfig::make(*task, "none", line.look_ahead("--preset")); }));
  settings->options = ConfigOptions::declare_for(
      line, *settings->config,
      [](std::string_view name) { return name.starts_with("task.") || name == "seed" || name == "data-seed"; },
      rules.needs);
  return settings;
}

Result TaskSequences::print(const std::string& name, bool as_json) const {
  as_usage([&] { find_task(name); });
  const std::unique_ptr<Task> task = as_usage([&] {
    options->apply(*config);
    std::unique_ptr<Task> made = config->make_task();
    made->split_holding(split, start, count);
    return made;
  });
  if (out.empty()) {
    for (std::int64_t index = start; index < start + count && std::cout; ++index) {
      const Example example = task->example(split, index);
      std::cout << (as_json ? json_line(*task, example, index) : task->text(example)) << "\n";
    }
    return {};
  }
  known_ending(out, {".npy"});
  check_output(out);
  write_tokens(*this, *task);
  return {.value = JsonValue::object(
              {{"out", out}, {"task", name}, {"split", split}, {"start", start}, {"sequences", count}}),
          .notice = true};
}

constexpr std::string_view npy_magic = "\x93NUMPY", checksum_prefix = "checksum";

bool is_npy(const std::string& path) {
  const FileReader reader(path);
  return reader.size() >= npy_magic.size() && reader.read_string(0, npy_magic.size()) == npy_magic;
}

JsonValue sizes_of(const Shape& shape) {
  JsonValue sizes = JsonValue::array();
  for (int axis = 0; axis < shape.rank; ++axis) sizes.push(shape[axis]);
  return sizes;
}

JsonValue npy_contents(const std::string& path) {
  const NpyHeader header = read_npy_header(path);
  return JsonValue::object({{"file", path},
                            {"type", name_of(header.dtype)},
                            {"shape", sizes_of(header.shape)},
                            {"fortran_order", header.fortran_order}});
}

JsonValue safetensors_contents(const SafetensorsFile& file) {
  JsonValue tensors = JsonValue::array(), metadata = JsonValue::object(), wrong = JsonValue::array();
  std::uint64_t bytes = 0;
  std::int64_t elements = 0;
  for (const auto& entry : file.entries()) {
    tensors.push(JsonValue::object({{"name", entry.name}, {"type", entry.type}, {"shape", sizes_of(entry.shape)}}));
    bytes += entry.end - entry.begin;
    elements += entry.shape.numel();
  }
  for (const auto& [key, value] : file.metadata()) metadata.set(key, value);
  if (metadata.contains(checksum_prefix)) {
    for (const std::string& name : verify_checksums(file)) wrong.push(name);
  }
  return JsonValue::object({{"file", file.path()},
                            {"tensors", std::move(tensors)},
                            {"elements", elements},
                            {"bytes", bytes},
                            {"metadata", std::move(metadata)},
                            {"bad_checksums", std::move(wrong)}});
}

// Names, types, shapes and metadata. A tensor with a wrong checksum is named, and the command fails. Throws Error for
// other files.
Result file_contents(const std::string& path) {
  if (is_npy(path)) return {.value = npy_contents(path)};
  JsonValue value;
  try {
    value = safetensors_contents(SafetensorsFile::open(path));
  } catch (const Error& error) {
    if (path.ends_with(".safetensors")) throw;
    fail("describe", "{}: is neither a safetensors nor a .npy file: {}", escape_for_print(path, 1000), error.what());
  }
  JsonValue shown = value;
  JsonValue metadata = JsonValue::object();
  for (const JsonMember& member : value.at("metadata").members()) {
    if (!member.name.starts_with(checksum_prefix)) metadata.set(member.name, member.value);
  }
  std::string text = value_text(shown.set("metadata", std::move(metadata)));
  const bool is_good = value.elements("bad_checksums").empty();
  return {is_good ? exit_code::done : exit_code::failed, std::move(value), std::move(text)};
}

// [{"name": "pe.p-max", "default": 64, "values": "1 to 8", "help": ...}]
JsonValue options_value(std::string_view prefix, const std::vector<OptionInfo>& options) {
  JsonValue all = JsonValue::array();
  for (const OptionInfo& option : options) {
    std::vector<std::string> allowed = option.allowed;
    if (std::holds_alternative<bool>(option.value)) allowed = {"true", "false"};
    all.push(JsonValue::object({{"name", formatted("{}{}", prefix, option.name)},
                                {"default", std::visit([](const auto& own) { return JsonValue(own); }, option.value)},
                                {"values", allowed.empty() ? option.range : joined(allowed, "|")},
                                {"help", option.help}}));
  }
  return all;
}

// Distinct sizes that no parameter has on its own, so that a shape can be printed with letters.
constexpr std::int64_t heads = 34, head_width = 76, width = heads * head_width, max_length = 1031, symbols = 97;

std::string shape_text(const Shape& shape) {
  constexpr std::array<std::pair<std::int64_t, const char*>, 5> letters{
      {{width, "D"}, {max_length, "T_max"}, {symbols, "V"}, {head_width, "d"}, {heads, "H"}}};
  constexpr std::array<std::pair<std::int64_t, const char*>, 2> fractions{
      {{width / 8, "D/8"}, {head_width / 2, "d/2"}}};
  constexpr std::int64_t most_times = 64;  // "16H"; options may be as large as a higher multiple
  std::string text;
  for (int axis = 0; axis < shape.rank; ++axis) {
    std::string size = to_text(shape[axis]);
    for (const auto& [value, letter] : letters) {
      const std::int64_t times = shape[axis] / value;
      if (times == 0 || shape[axis] % value != 0 || times > most_times) continue;
      size = formatted("{}{}", times == 1 ? "" : to_text(times), letter);
      break;
    }
    for (const auto& [value, letter] : fractions) {
      if (shape[axis] == value) size = letter;
    }
    text += formatted("{}{}", axis > 0 ? ", " : "", size);
  }
  return formatted("[{}]", text);
}

JsonValue tensor_value(std::string_view path, const Shape& shape) {
  return JsonValue::object({{"name", formatted("model.{}", path)}, {"shape", shape_text(shape)}});
}

// The parameters of an encoding: "model.blocks.N.position.cope.table", "[65, d]".
JsonValue parameters_of(const EncodingChoice& choice) {
  ModelOptions model;
  model.layers = 2;
  model.heads = heads;
  model.width = width;
  JsonValue tensors = JsonValue::array();
  for (const auto& [path, shape] : parameter_shapes(model, choice, 2, max_length)) {
    if (path.find("position.") == std::string::npos || path.starts_with("blocks.1.")) continue;
    std::string name = path;
    if (name.starts_with("blocks.0.")) name.replace(7, 1, "N");
    tensors.push(tensor_value(name, shape));
  }
  return tensors;
}

JsonValue value_of(const EncodingEntry& entry) {
  return JsonValue::object({{"kind", "encoding"},
                            {"name", entry.name},
                            {"summary", entry.summary},
                            {"formula", entry.formula},
                            {"options", options_value("pe.", list_options(*entry.make_options()))},
                            {"sizes", "H heads, d head width, D width, T_max longest sequence"},
                            {"parameters", parameters_of(EncodingChoice::parse(entry.name))},
                            {"paper", entry.paper}});
}

// A combination, or an assignment to layers and heads: the parameters in the smallest model that fits it, then its
// parts.
JsonValue value_of(const EncodingChoice& choice) {
  ModelOptions model;
  model.layers = choice.least_layers();
  model.heads = choice.least_heads();
  model.width = model.heads * head_width;
  JsonValue acts_on = JsonValue::array();
  for (const EncodingChoice::Assignment& assignment : choice.acting()) {
    acts_on.push(formatted("{}, {}: {}", assignment.layers.all() ? "all layers" : "layers " + assignment.layers.text(),
                           assignment.heads.all() ? "all heads" : "heads " + assignment.heads.text(),
                           assignment.sum_text()));
  }
  for (const std::string& line : square_memory_notes(choice)) acts_on.push(line);
  JsonValue tensors = JsonValue::array(), parts = JsonValue::array();
  for (const auto& [path, shape] : parameter_shapes(model, choice, 2, max_length)) {
    if (path.find("position.") != std::string::npos) tensors.push(tensor_value(path, shape));
  }
  for (const EncodingChoice::Part& part : choice.parts) parts.push(value_of(*part.entry));
  const std::string sizes = formatted("{}, {}; d head width, T_max longest sequence", plural(model.layers, "layer"),
                                      plural(model.heads, "head"));
  return JsonValue::object({{"kind", "encodings"},
                            {"name", choice.text()},
                            {"acts_on", std::move(acts_on)},
                            {"sizes", sizes},
                            {"parameters", std::move(tensors)},
                            {"parts", std::move(parts)}});
}

// --model.kind lstm
JsonValue lstm_value() {
  ModelOptions model;
  model.kind = "lstm";
  model.layers = 1;
  model.width = width;
  JsonValue tensors = JsonValue::array();
  for (const auto& [path, shape] : parameter_shapes(model, EncodingChoice::parse("none"), symbols, max_length))
    tensors.push(tensor_value(path, shape));
  return JsonValue::object(
      {{"kind", "model"},
       {"name", "lstm"},
       {"summary", "LSTM layers, which read tokens in order; --model.kind lstm, without --pe"},
       {"formula", "i, f, o = sigmoid, g = tanh of W x_t + b + U h_{t-1};  c_t = f c_{t-1} + i g;  h_t = o tanh(c_t)"},
       {"sizes", "1 layer; D width, V symbols; blocks of D rows for i, f, g, o"},
       {"parameters", std::move(tensors)},
       {"paper",
        "Hochreiter and Schmidhuber 1997; forget gate: Gers, Schmidhuber and Cummins 2000; on flip-flop: Liu et al. "
        "2023, arXiv 2306.00946"}});
}

JsonValue value_of(const TaskEntry& entry) {
  const std::unique_ptr<Options> options = entry.make_options();
  JsonValue value = JsonValue::object({{"kind", "task"},
                                       {"name", entry.name},
                                       {"summary", entry.summary},
                                       {"description", entry.description},
                                       {"options", options_value("task.", list_options(*options))}});
  if (!entry.reads_files) {  // for others the files define them
    const std::unique_ptr<Task> task = entry.make(*options, 1, 0);
    JsonValue splits = JsonValue::array();
    for (const Split& split : task->splits()) {
      splits.push(JsonValue::object({{"name", split.name},
                                     {"sequences", split.count == 0 ? JsonValue("endless") : JsonValue(split.count)},
                                     {"length", split.length},
                                     {"summary", split.summary}}));
    }
    value.set("splits", std::move(splits)).set("vocabulary", task->vocabulary().size());
  }
  JsonValue presets = JsonValue::array();
  for (const PresetEntry& preset : preset_registry()) {
    if (preset.task == entry.name)
      presets.push(JsonValue::object({{"name", preset.name}, {"summary", preset.summary}}));
  }
  return value.set("presets", std::move(presets)).set("paper", entry.paper);
}

JsonValue value_of(const PresetEntry& entry) {
  JsonValue settings = JsonValue::array();
  for (const auto& [name, value] : entry.settings) settings.push(JsonValue::object({{"name", name}, {"value", value}}));
  JsonValue value = JsonValue::object({{"kind", "preset"},
                                       {"name", entry.name},
                                       {"task", entry.task},
                                       {"summary", entry.summary},
                                       {"settings", std::move(settings)}});
  if (!entry.source.empty()) value.set("source", entry.source);
  if (!entry.note.empty()) value.set("note", entry.note);
  return value;
}

JsonValue value_of(const OptimizerEntry& entry) {
  return JsonValue::object({{"kind", "optimiser"},
                            {"name", entry.name},
                            {"summary", entry.summary},
                            {"options", options_value("optimiser.", list_options(*entry.make_options()))}});
}

// A task, encoding, optimiser or preset in a list.
template <class Entry>
JsonValue line_of(const Entry& entry) {
  std::string name = entry.name;
  if constexpr (requires { entry.settings; }) name = formatted("{} {}", entry.task, entry.name);
  return JsonValue::object({{"name", std::move(name)}, {"summary", std::string(entry.summary)}});
}

// {"tasks": [{"name", "summary"}], ...}
JsonValue all_kinds() {
  JsonValue all = JsonValue::object();
  const auto add = [&](const char* kind, const auto& registry) {
    JsonValue lines = JsonValue::array();
    for (const auto& entry : registry) {
      if constexpr (requires { *entry; }) {
        lines.push(line_of(*entry));
      } else {
        lines.push(line_of(entry));
      }
    }
    all.set(kind, std::move(lines));
  };
  add("tasks", task_registry());
  add("encodings", encoding_registry());
  add("optimisers", optimizer_registry());
  add("presets", preset_registry());
  return all;
}

bool is_file(const std::string& name) {
  std::error_code error;
  return name.ends_with(".safetensors") || name.ends_with(".npy") || name.find('/') != std::string::npos ||
         std::filesystem::is_regular_file(name, error);
}

Result describe(const std::string& name) {
  JsonValue kinds = all_kinds();
  if (name.empty()) return {.value = std::move(kinds)};
  if (kinds.contains(name)) return {.value = JsonValue::object({{name, kinds.at(name)}})};
  std::vector<std::string> known;
  JsonValue found = JsonValue::array();
  const auto consider = [&](const std::string& own, const auto& entry) {
    known.push_back(own);
    if (own == name) found.push(value_of(entry));
  };
  for (const JsonMember& kind : kinds.members()) known.push_back(kind.name);
  for (const TaskEntry* entry : task_registry()) consider(entry->name, *entry);
  for (const EncodingEntry* entry : encoding_registry()) consider(entry->name, *entry);
  for (const OptimizerEntry* entry : optimizer_registry()) consider(entry->name, *entry);
  for (const PresetEntry& entry : preset_registry()) {
    consider(entry.name, entry);
    consider(formatted("{} {}", entry.task, entry.name), entry);  // as 'tally describe presets' prints it
  }
  known.emplace_back("lstm");
  if (name == known.back()) found.push(lstm_value());
  if (found.elements().empty() && is_file(name)) return file_contents(name);
  if (name.find_first_of("+:@,[") != std::string::npos) {
    found.push(as_usage([&] { return value_of(EncodingChoice::parse(name)); }));
  }
  if (found.elements().empty()) {
    const std::string other = other_name_hint(name), hint = other.empty() ? did_you_mean(name, known) : other;
    throw UsageError(formatted("[describe] there is no task, encoding, optimiser, preset or file '{}'{}", name,
                               hint.empty() ? "; 'tally describe' lists all" : hint));
  }
  std::string text = value_text(found);
  return {.value = JsonValue::object({{"name", name}, {"found", std::move(found)}}), .text = std::move(text)};
}

}  // namespace

std::function<Result()> declare_describe(CommandLine& line) {
  const auto words = std::make_shared<std::vector<std::string>>();
  line.json_help = "print one JSON object at the end; with --sequences one a line, for each sequence";
  line.add("NAME", words.get(),
           "tasks, encodings, optimisers or presets (all without a name); a task, an encoding, an optimiser, a "
           "preset (of all tasks that have it, or of one: flip-flop paper), a combination of encodings (cope+rope; "
           "0:none,1-3:cope), or lstm; or a .safetensors or .npy file");
  const auto sequences = TaskSequences::declare(line);
  return [words, sequences, &common = line.common] {
    const std::string name = joined(*words, " ");
    return sequences->count > 0 ? sequences->print(name, common.json) : describe(name);
  };
}

}  // namespace tally

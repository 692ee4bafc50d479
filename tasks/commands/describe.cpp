// tally describe: lists all tasks, encodings, optimisers, presets and suites. Describes one of them or a file. Prints
// sequences of a task.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "nn/optimizer.hpp"
#include "tasks/checks/attention_memory.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/command_line/value_text.hpp"
#include "tasks/commands/parts/file_contents.hpp"
#include "tasks/commands/parts/task_sequences.hpp"
#include "tasks/runs/preset.hpp"
#include "tasks/runs/suite.hpp"

namespace tally {
namespace {

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
constexpr std::int64_t heads = 34, head_width = 74, width = heads * head_width, max_length = 1031, symbols = 97;

std::string shape_text(const Shape& shape) {
  constexpr std::array<std::pair<std::int64_t, const char*>, 7> letters{{{heads, "H"},
                                                                         {2 * heads, "2H"},
                                                                         {head_width, "d"},
                                                                         {width, "D"},
                                                                         {4 * width, "4D"},
                                                                         {max_length, "T_max"},
                                                                         {symbols, "V"}}};
  std::string text;
  for (int axis = 0; axis < shape.rank; ++axis) {
    std::string size = to_text(shape[axis]);
    for (const auto& [value, letter] : letters) {
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

// The parameters, and below them those for each option value that changes them.
JsonValue parameters_of(const EncodingEntry& entry) {
  const JsonValue usual = parameters_of(EncodingChoice::parse(entry.name));
  JsonValue all = usual;
  for (const OptionInfo& option : list_options(*entry.make_options())) {
    std::vector<std::string> values = option.allowed;
    if (std::holds_alternative<bool>(option.value)) values = {"true", "false"};
    for (const std::string& value : values) {
      EncodingChoice choice = EncodingChoice::parse(entry.name);
      choice.set_option(option.name, value);
      try {
        choice.parts.front().options->validate();
      } catch (const Error&) {
        continue;  // requires another option's value as well
      }
      JsonValue tensors = parameters_of(choice);
      if (tensors == usual) continue;
      if (tensors.elements().empty()) tensors.push(JsonValue::object({{"name", "none"}, {"shape", ""}}));
      for (JsonValue tensor : tensors.elements()) {
        all.push(tensor.set("with", formatted("{} = {}", option.name, value)));
      }
    }
  }
  return all;
}

JsonValue value_of(const EncodingEntry& entry) {
  return JsonValue::object({{"kind", "encoding"},
                            {"name", entry.name},
                            {"summary", entry.summary},
                            {"formula", entry.formula},
                            {"options", options_value("pe.", list_options(*entry.make_options()))},
                            {"sizes", "H heads, d head width, D width, T_max longest sequence"},
                            {"parameters", parameters_of(entry)},
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
  const std::string sizes =
      formatted("{}{}{}{}; d head width, T_max longest sequence", model.layers,
                model.layers == 1 ? " layer, " : " layers, ", model.heads, model.heads == 1 ? " head" : " heads");
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
       {"summary", "layers of LSTM, which take tokens in their order; --model.kind lstm, with no --pe"},
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
  std::string name = entry.name, summary = entry.summary;
  if constexpr (requires { entry.settings; }) name = formatted("{} {}", entry.task, entry.name);
  if constexpr (requires { entry.parts; }) summary += formatted(" ({})", joined(entry.parts));
  return JsonValue::object({{"name", std::move(name)}, {"summary", std::move(summary)}});
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
  add("suites", suite_registry());
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
           "tasks, encodings, optimisers, presets or suites (all without a name); a task, an encoding, an optimiser, a "
           "preset (of all tasks that have it, or of one: flip-flop paper), a combination of encodings (cope+rope; "
           "0:none,1-3:cope), or lstm; or a .safetensors or .npy file");
  const auto sequences = TaskSequences::declare(line);
  return [words, sequences, &common = line.common] {
    const std::string name = joined(*words, " ");
    return sequences->count > 0 ? sequences->print(name, common.json) : describe(name);
  };
}

}  // namespace tally

// tally describe: describes one task, encoding, optimiser or preset as a value (--json), which description_text.cpp
// formats.
#include <algorithm>
#include <array>
#include <memory>

#include "nn/optimizer.hpp"
#include "tasks/checks/attention_memory.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/commands/parts/description_text.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

// [{"name": "pe.p-max", "default": 64, "range": "1 to 8", "help": ...}]; a choice has "allowed".
JsonValue options_value(std::string_view prefix, const std::vector<OptionInfo>& options) {
  JsonValue all = JsonValue::array();
  for (const OptionInfo& option : options) {
    JsonValue one =
        JsonValue::object({{"name", formatted("{}{}", prefix, option.name)},
                           {"default", std::visit([](const auto& own) { return JsonValue(own); }, option.value)}});
    std::vector<std::string> allowed = option.allowed;
    if (std::holds_alternative<bool>(option.value)) allowed = {"true", "false"};
    if (!allowed.empty()) {
      one.set("allowed", JsonValue::Array(allowed.begin(), allowed.end()));
    } else if (!option.range.empty()) {
      one.set("range", option.range);
    }
    all.push(one.set("help", option.help));
  }
  return all;
}

// Distinct sizes that no parameter has on its own, so that a shape can be printed with letters.
constexpr std::int64_t heads = 34, head_width = 74, width = heads * head_width, max_length = 1031, vocabulary = 97;

std::string shape_text(const Shape& shape) {
  constexpr std::array<std::pair<std::int64_t, const char*>, 7> letters{{{heads, "H"},
                                                                         {2 * heads, "2H"},
                                                                         {head_width, "d"},
                                                                         {width, "D"},
                                                                         {4 * width, "4D"},
                                                                         {max_length, "T_max"},
                                                                         {vocabulary, "V"}}};
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

// The parameters for each option value that changes them from the default.
JsonValue other_parameters(const EncodingEntry& entry, const JsonValue& usual) {
  JsonValue others = JsonValue::array();
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
      others.push(JsonValue::object({{"option", option.name}, {"value", value}, {"tensors", std::move(tensors)}}));
    }
  }
  return others;
}

JsonValue value_of(const EncodingEntry& entry) {
  const JsonValue usual = parameters_of(EncodingChoice::parse(entry.name));
  return JsonValue::object(
      {{"kind", "encoding"},
       {"name", entry.name},
       {"summary", entry.summary},
       {"formula", entry.formula},
       {"options", options_value("pe.", list_options(*entry.make_options()))},
       {"parameters", JsonValue::object({{"of", "H heads, d head width, D width, T_max longest sequence"},
                                         {"tensors", usual},
                                         {"with", other_parameters(entry, usual)}})},
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
  const std::string of =
      formatted("{}{}{}{}; d head width, T_max longest sequence", model.layers,
                model.layers == 1 ? " layer, " : " layers, ", model.heads, model.heads == 1 ? " head" : " heads");
  return JsonValue::object({{"kind", "encodings"},
                            {"name", choice.text()},
                            {"acts_on", std::move(acts_on)},
                            {"parameters", JsonValue::object({{"of", of}, {"tensors", std::move(tensors)}})},
                            {"parts", std::move(parts)}});
}

// --model.kind lstm
JsonValue lstm_value() {
  ModelOptions model;
  model.kind = "lstm";
  model.layers = 1;
  model.width = width;
  JsonValue tensors = JsonValue::array();
  for (const auto& [path, shape] : parameter_shapes(model, EncodingChoice::parse("none"), vocabulary, max_length))
    tensors.push(tensor_value(path, shape));
  return JsonValue::object(
      {{"kind", "model"},
       {"name", "lstm"},
       {"summary", "layers of LSTM, which take tokens in their order; --model.kind lstm, with no --pe"},
       {"formula", "i, f, o = sigmoid, g = tanh of W x_t + b + U h_{t-1};  c_t = f c_{t-1} + i g;  h_t = o tanh(c_t)"},
       {"parameters", JsonValue::object({{"of", "1 layer; D width, V symbols; blocks of D rows for i, f, g, o"},
                                         {"tensors", std::move(tensors)}})},
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
      splits.push(JsonValue::object(
          {{"name", split.name}, {"summary", split.summary}, {"count", split.count}, {"length", split.length}}));
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

Result run_describe(const std::string& name) {
  std::vector<std::string> known;
  JsonValue found = JsonValue::array();
  const auto consider = [&](const std::string& own, const auto& entry) {
    known.push_back(own);
    if (own == name) found.push(value_of(entry));
  };
  for (const TaskEntry* entry : task_registry()) consider(entry->name, *entry);
  for (const EncodingEntry* entry : encoding_registry()) consider(entry->name, *entry);
  for (const OptimizerEntry* entry : optimizer_registry()) consider(entry->name, *entry);
  for (const PresetEntry& entry : preset_registry()) {
    consider(entry.name, entry);
    consider(formatted("{} {}", entry.task, entry.name), entry);  // as 'tally list' prints it
  }
  known.emplace_back("lstm");
  if (name == known.back()) found.push(lstm_value());
  if (name.find_first_of("+:@,[") != std::string::npos) {
    found.push(as_usage([&] { return value_of(EncodingChoice::parse(name)); }));
  }
  if (found.elements().empty()) {
    const std::string other = other_name_hint(name), hint = other.empty() ? did_you_mean(name, known) : other;
    throw UsageError(formatted("[describe] there is no task, encoding, optimiser or preset '{}'{}", name,
                               hint.empty() ? "; 'tally list' shows all" : hint));
  }
  JsonValue value = JsonValue::object({{"name", name}, {"found", std::move(found)}});
  std::string text = description_text(value);
  return {.value = std::move(value), .text = std::move(text)};
}

}  // namespace

std::function<Result()> declare_describe(CommandLine& line) {
  const auto words = std::make_shared<std::vector<std::string>>();
  line.add(
      "NAME", words.get(),
      "a task, an encoding, an optimiser, a preset (of all tasks that have it, or of one: flip-flop paper), encodings "
      "together (cope+rope; 0:none,1-3:cope), or lstm",
      {.required = true});
  return [words] { return run_describe(joined(*words, " ")); };
}

}  // namespace tally

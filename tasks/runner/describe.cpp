// tally describe: all there is to know of one task, encoding, optimiser or preset.
#include <algorithm>
#include <array>
#include <memory>

#include "nn/optimizer.hpp"
#include "tasks/estimate.hpp"
#include "tasks/preset.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/grid.hpp"
#include "tasks/statistics.hpp"

namespace tally {
namespace {

std::string indented(const std::string& text) { return concat("  ", joined(split_text(text, '\n'), "\n  "), "\n"); }

std::string options_text(const std::string& prefix, const std::vector<OptionInfo>& options) {
  if (options.empty()) return "";
  std::string text = "\nOptions\n";
  for (const OptionInfo& option : options) {
    std::string allowed = option.allowed.empty() ? option.range : joined(option.allowed, "|");
    if (std::holds_alternative<bool>(option.value)) allowed = "true|false";
    text += concat("  --", prefix, option.name, " (default ",
                   to_text(option.value).empty() ? "empty" : to_text(option.value),
                   allowed.empty() ? "" : concat("; ", allowed), ")\n      ", option.help, "\n");
  }
  return text;
}

// Sizes that no table has by itself, so that a shape can be told in letters.
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
    text += concat(axis > 0 ? ", " : "", size);
  }
  return concat("[", text, "]");
}

// The parameters that an encoding brings: "model.blocks.N.position.cope.table [65, d]".
std::vector<std::string> parameters_of(const EncodingChoice& choice) {
  ModelOptions model;
  model.layers = 2;
  model.heads = heads;
  model.width = width;
  std::vector<std::string> lines;
  for (const auto& [path, shape] : parameter_shapes(model, choice, 2, max_length)) {
    std::string name = "model." + path;
    if (name.find("position.") == std::string::npos || path.starts_with("blocks.1.")) continue;
    if (const std::size_t block = name.find("blocks.0."); block != std::string::npos) name.replace(block + 7, 1, "N");
    lines.push_back(concat(name, " ", shape_text(shape)));
  }
  return lines;
}

std::string parameters_text(const EncodingEntry& entry) {
  const std::vector<std::string> usual = parameters_of(EncodingChoice::parse(entry.name));
  std::string text = "\nParameters (H heads, d head width, D width, T_max longest sequence)\n";
  for (const std::string& line : usual) text += indented(line);
  if (usual.empty()) text += "  none\n";
  for (const OptionInfo& option : list_options(*entry.make_options())) {
    std::vector<std::string> values = option.allowed;
    if (std::holds_alternative<bool>(option.value)) values = {"true", "false"};
    for (const std::string& value : values) {
      EncodingChoice choice = EncodingChoice::parse(entry.name);
      choice.set_option(option.name, value);
      try {
        choice.parts.front().options->validate();
      } catch (const Error&) {
        continue;  // needs another option's value as well
      }
      const std::vector<std::string> lines = parameters_of(choice);
      if (lines == usual) continue;
      text += concat("  with ", option.name, " = ", value, lines.empty() ? ": none\n" : "\n");
      for (const std::string& line : lines) text += concat("    ", line, "\n");
    }
  }
  return text;
}

std::string text_of(const EncodingEntry& entry) {
  return concat("encoding ", entry.name, ": ", entry.summary, "\n\nFormula\n", indented(entry.formula),
                options_text("pe.", list_options(*entry.make_options())), parameters_text(entry), "\nPaper\n",
                indented(entry.paper));
}

// A sum, or what acts where: the parameters in the smallest model that has all it names, then its parts.
std::string text_of(const EncodingChoice& choice) {
  std::string text = concat("encodings ", choice.text(), "\n\nActs on\n");
  ModelOptions model;
  model.layers = choice.least_layers();
  model.heads = choice.least_heads();
  model.width = model.heads * head_width;
  for (const EncodingChoice::Assignment& assignment : choice.acting()) {
    text += concat("  ", assignment.layers.all() ? "all layers" : "layers " + assignment.layers.text(), ", ",
                   assignment.heads.all() ? "all heads" : "heads " + assignment.heads.text(), ": ",
                   assignment.sum_text(), "\n");
  }
  for (const std::string& line : choice.open_choices()) text += concat("  ", line, "\n");
  std::string parameters;
  for (const auto& [path, shape] : parameter_shapes(model, choice, 2, max_length)) {
    if (path.find("position.") == std::string::npos) continue;
    parameters += concat("  model.", path, " ", shape_text(shape), "\n");
  }
  text += concat("\nParameters with ", model.layers, model.layers == 1 ? " layer, " : " layers, ", model.heads,
                 model.heads == 1 ? " head (" : " heads (", "d head width, T_max longest sequence)\n",
                 parameters.empty() ? "  none\n" : parameters);
  for (const EncodingChoice::Part& part : choice.parts) text += concat("\n", text_of(*part.entry));
  return text;
}

// --model.kind lstm
std::string lstm_text() {
  ModelOptions model;
  model.kind = "lstm";
  model.layers = 1;
  model.width = width;
  std::string text =
      "lstm: layers of LSTM, which take tokens in their order; --model.kind lstm, with no --pe\n\nFormula\n"
      "  i, f, o = sigmoid, g = tanh of W x_t + b + U h_{t-1};  c_t = f c_{t-1} + i g;  h_t = o tanh(c_t)\n"
      "\nParameters with 1 layer (D width, V symbols; blocks of D rows for i, f, g, o)\n";
  for (const auto& [path, shape] : parameter_shapes(model, EncodingChoice::parse("none"), vocabulary, max_length)) {
    text += concat("  model.", path, " ", shape_text(shape), "\n");
  }
  return text +
         "\nPaper\n  Hochreiter and Schmidhuber 1997; forget gate: Gers, Schmidhuber and Cummins 2000; on flip-flop: "
         "Liu "
         "et al. 2023, arXiv 2306.00946\n";
}

std::string text_of(const TaskEntry& entry) {
  const std::unique_ptr<Options> options = entry.make_options();
  std::string text = concat("task ", entry.name, ": ", entry.summary, "\n\n", indented(entry.description),
                            options_text("task.", list_options(*options)));
  if (entry.reads_files) {
    text += "\nSplits and vocabulary are those of its files\n";
  } else {
    const std::unique_ptr<Task> task = entry.make(*options, 1, 0);
    text += "\nSplits\n";
    for (const Split& split : task->splits()) {
      text += concat("  ", split.name, ": ", split.summary, "; ",
                     split.count == 0 ? "endless" : concat(with_commas(split.count), " sequences"), ", up to ",
                     split.length, " tokens\n");
    }
    text += concat("\nVocabulary: ", task->vocabulary().size(), " symbols\n");
  }
  text += "\nPresets\n";
  for (const PresetEntry* preset : preset_registry()) {
    if (preset->task == entry.name) text += concat("  ", preset->name, ": ", preset->summary, "\n");
  }
  return text + concat("\nPaper\n", indented(entry.paper));
}

std::string text_of(const PresetEntry& entry) {
  std::string text = concat("preset ", entry.name, " of task ", entry.task, ": ", entry.summary, "\n");
  for (const auto& [name, value] : entry.settings) text += concat("  --", name, " ", value, "\n");
  return text;
}

std::string text_of(const OptimizerEntry& entry) {
  return concat("optimiser ", entry.name, ": ", entry.summary, "\n",
                options_text("optimiser.", list_options(*entry.make_options())));
}

Result run_describe(const std::string& name) {
  std::vector<std::string> known;
  std::string text;
  const auto consider = [&](const std::string& own, const auto& entry) {
    known.push_back(own);
    if (own == name) text += concat(text.empty() ? "" : "\n", text_of(entry));
  };
  for (const TaskEntry* entry : task_registry()) consider(entry->name, *entry);
  for (const EncodingEntry* entry : encoding_registry()) consider(entry->name, *entry);
  for (const OptimizerEntry* entry : optimizer_registry()) consider(entry->name, *entry);
  for (const PresetEntry* entry : preset_registry()) {
    consider(entry->name, *entry);
    consider(concat(entry->task, " ", entry->name), *entry);  // as 'tally list' prints it
  }
  known.emplace_back("lstm");
  if (name == known.back()) text = lstm_text();
  if (name.find_first_of("+:@,") != std::string::npos) {
    text = as_usage([&] { return text_of(EncodingChoice::parse(name)); });
  }
  if (text.empty()) {
    const std::string other = other_name_hint(name), hint = other.empty() ? did_you_mean(name, known) : other;
    throw UsageError(concat("[describe] there is no task, encoding, optimiser or preset '", name, "'",
                            hint.empty() ? "; 'tally list' shows all" : hint));
  }
  return {.value = JsonValue::object({{"name", name}, {"text", text}}), .text = text};
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

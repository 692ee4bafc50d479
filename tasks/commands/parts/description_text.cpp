#include "tasks/commands/parts/description_text.hpp"

#include "nn/options.hpp"
#include "tasks/command_line/grid.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

std::string indented(const std::string& text) { return formatted("  {}\n", joined(split_text(text, '\n'), "\n  ")); }

// The value as written on the command line.
std::string value_text(const JsonValue& value) {
  if (value.is_string()) return value.string();
  return value.is_real() ? to_text(value.real()) : write_json(value);
}

std::string options_text(const JsonValue& options) {
  std::string text;
  for (const JsonValue& option : options.elements()) {
    std::string allowed;
    if (const JsonValue* const range = option.find("range")) allowed = "; " + range->string();
    if (const JsonValue* const choices = option.find("allowed")) {
      for (const JsonValue& choice : choices->elements()) allowed += (allowed.empty() ? "; " : "|") + choice.string();
    }
    const std::string usual = value_text(option.at("default"));
    text += formatted("  --{} (default {}{})\n      {}\n", option.string("name"), usual.empty() ? "empty" : usual,
                      allowed, option.string("help"));
  }
  return text;
}

std::string tensors_text(const JsonValue& tensors, std::string_view indent) {
  std::string text;
  for (const JsonValue& tensor : tensors.elements())
    text += formatted("{}{} {}\n", indent, tensor.string("name"), tensor.string("shape"));
  return text;
}

std::string parameters_text(const JsonValue& parameters) {
  const JsonValue& usual = parameters.at("tensors");
  std::string text = usual.elements().empty() ? "  none\n" : tensors_text(usual, "  ");
  if (!parameters.contains("with")) return text;
  for (const JsonValue& other : parameters.elements("with")) {
    const std::string tensors = tensors_text(other.at("tensors"), "    ");
    text += formatted("  with {} = {}{}", other.string("option"), other.string("value"),
                      tensors.empty() ? ": none\n" : "\n" + tensors);
  }
  return text;
}

std::string splits_text(const JsonValue& splits) {
  std::string text;
  for (const JsonValue& split : splits.elements()) {
    const std::int64_t count = split.integer("count");
    text += formatted("  {}: {}; {}, up to {} tokens\n", split.string("name"), split.string("summary"),
                      count == 0 ? "endless" : formatted("{} sequences", with_commas(count)), split.integer("length"));
  }
  return text;
}

std::string one_text(const JsonValue& one) {
  const std::string& kind = one.string("kind");
  std::string text = formatted("{}{}", kind == "model" ? "" : kind + " ", one.string("name"));
  if (one.contains("task")) text += " of task " + one.string("task");
  if (one.contains("summary")) text += ": " + one.string("summary");
  text += "\n";
  // Adds a title and the text below it, if the value has a non-empty member of this name.
  const auto section = [&](const char* member, const std::string& title, auto&& told) {
    const JsonValue* const value = one.find(member);
    if (value == nullptr || (value->is_array() && value->elements().empty())) return;
    text += formatted("\n{}{}{}", title, title.empty() ? "" : "\n", told(*value));
  };
  const auto lines = [](const JsonValue& value) { return indented(value.string()); };
  section("description", "", lines);
  section("formula", "Formula", lines);
  section("acts_on", "Acts on", [](const JsonValue& all) {
    std::string told;
    for (const JsonValue& line : all.elements()) told += indented(line.string());
    return told;
  });
  section("options", "Options", options_text);
  if (const JsonValue* const parameters = one.find("parameters"))
    section("parameters", formatted("Parameters ({})", parameters->string("of")), parameters_text);
  if (kind == "task" && !one.contains("splits")) text += "\nSplits and vocabulary are those of its files\n";
  section("splits", "Splits", splits_text);
  section("vocabulary", "",
          [](const JsonValue& count) { return formatted("Vocabulary: {} symbols\n", count.integer()); });
  section("presets", "Presets", [](const JsonValue& all) {
    std::string told;
    for (const JsonValue& preset : all.elements())
      told += formatted("  {}: {}\n", preset.string("name"), preset.string("summary"));
    return told;
  });
  if (const JsonValue* const settings = one.find("settings")) {
    for (const JsonValue& setting : settings->elements())
      text += formatted("  --{} {}\n", setting.string("name"), setting.string("value"));
  }
  section("paper", "Paper", lines);
  section("source", "Source", lines);
  section("note", "Note", lines);
  section("parts", "", [](const JsonValue& parts) {
    std::string told;
    for (const JsonValue& part : parts.elements()) told += formatted("{}{}", told.empty() ? "" : "\n", one_text(part));
    return told;
  });
  return text;
}

}  // namespace

std::string description_text(const JsonValue& value) {
  std::string text;
  for (const JsonValue& one : value.elements("found"))
    text += formatted("{}{}", text.empty() ? "" : "\n", one_text(one));
  return text;
}

}  // namespace tally

#include "tasks/foreign/settings.hpp"

#include <algorithm>
#include <limits>
#include <sstream>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

// The first word of the line of idle_keys.txt, "idle: use_cache torchscript", that has the key; empty if none has it.
std::string line_of(std::string_view key) {
  std::istringstream lines{std::string(data_file("idle_keys.txt"))};
  for (std::string line; std::getline(lines, line);) {
    const bool has_it = (line + " ").find(formatted(" {} ", key)) != std::string::npos;
    if (has_it && !line.starts_with('#')) return line.substr(0, line.find(':'));
  }
  return "";
}

bool is_false(const JsonValue* value) { return value != nullptr && value->is_bool() && !value->boolean(); }

}  // namespace

KeyEffect effect_of(std::string_view key, const JsonValue& object) {
  const std::string line = key.find(' ') == key.npos ? line_of(key) : "";
  const JsonValue& value = object.at(key);
  // Notes of a library begin with an underscore: _attn_implementation, _num_labels.
  if (line == "idle" || key.starts_with('_') || key.starts_with("summary_")) return KeyEffect::none;
  if (line.empty()) return KeyEffect::unknown;
  const bool is_idle = line == "false"   ? is_false(&value)
                       : line == "one"   ? value.is_number() && value.real() == 1
                       : line == "empty" ? value == JsonValue::array() || value == JsonValue::object()
                       // Qwen2 files have a window width even if their flag disables windows.
                       : line == "window" ? is_false(object.find("use_sliding_window"))
                                          : line == "full" && value.is_array() &&
                                                std::ranges::count(value.elements(), JsonValue("full_attention")) ==
                                                    std::ssize(value.elements());
  return is_idle ? KeyEffect::none : KeyEffect::changes;
}

ForeignSettings::ForeignSettings(const JsonValue& object, std::string source, IgnoredKeys ignored)
    : object_(object), source_(std::move(source)), ignored_(std::move(ignored)) {
  check(object.is_object(), "import", "{}: must hold an object, not {}", source_, object.kind());
}

bool ForeignSettings::has(std::string_view key) const {
  const JsonValue* value = object_.find(key);
  return value != nullptr && !value->is_null();
}

const JsonValue* ForeignSettings::take(std::string_view key, bool needed) {
  read_.emplace(key);
  if (has(key)) return object_.find(key);
  check(!needed, "import", "{}: '{}' is missing", source_, key);
  return nullptr;
}

const JsonValue* ForeignSettings::take(std::string_view key, bool needed, bool (JsonValue::*is)() const,
                                       std::string_view wanted) {
  const JsonValue* value = take(key, needed);
  if (value != nullptr && !(value->*is)()) refuse(key, "must be {}, not {}", wanted, value->kind());
  return value;
}

std::int64_t ForeignSettings::count(std::string_view key, std::optional<std::int64_t> usual) {
  const JsonValue* value = take(key, !usual, &JsonValue::is_integer, "an integer");
  if (value == nullptr) return *usual;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::int64_t number = value->integer();
  if (number < 1 || number > most) refuse(key, "is {}; it must be from 1 to {}", number, most);
  return number;
}

double ForeignSettings::real(std::string_view key, std::optional<double> usual) {
  const JsonValue* value = take(key, !usual, &JsonValue::is_number, "a number");
  return value == nullptr ? *usual : value->real();
}

double ForeignSettings::positive(std::string_view key, std::optional<double> usual) {
  const double number = real(key, usual);
  if (!(number > 0)) refuse(key, "is {}; it must be above 0", number);
  return number;
}

void ForeignSettings::agree(std::string_view key, std::int64_t value) {
  const std::int64_t said = count(key, value);
  if (said != value) refuse(key, "= {} contradicts another key for the same, which says {}", said, value);
}

std::vector<std::int64_t> ForeignSettings::ids(std::string_view key, std::int64_t end) {
  const JsonValue* const value = take(key, false);
  std::vector<std::int64_t> ids;
  const auto add = [&](const JsonValue& id) {
    if (!id.is_integer()) refuse(key, "must be an id, an integer, or an array of them, not {}", id.kind());
    if (0 <= id.integer() && id.integer() < end) ids.push_back(id.integer());
  };
  if (value == nullptr) return ids;
  value->is_array() ? void(std::ranges::for_each(value->elements(), add)) : add(*value);
  return ids;
}

bool ForeignSettings::flag(std::string_view key, bool usual) {
  const JsonValue* value = take(key, false, &JsonValue::is_bool, "true or false");
  return value == nullptr ? usual : value->boolean();
}

std::string ForeignSettings::text(std::string_view key, std::optional<std::string_view> usual) {
  const JsonValue* value = take(key, !usual, &JsonValue::is_string, "a string");
  return value == nullptr ? std::string(*usual) : value->string();
}

ForeignSettings ForeignSettings::child(std::string_view key) {
  static const JsonValue empty = JsonValue::object();
  const JsonValue* value = take(key, false, &JsonValue::is_object, "an object");
  const std::string prefix = formatted("{}.", key);
  IgnoredKeys within;
  for (const std::string& name : ignored_) {
    if (name.starts_with(prefix)) within.push_back(name.substr(prefix.size()));
  }
  std::erase_if(ignored_, [&](const std::string& name) { return name.starts_with(prefix); });
  return {value == nullptr ? empty : *value, formatted("{}: {}", source_, key), std::move(within)};
}

void ForeignSettings::demand(std::string_view key, bool wanted, bool usual) {
  if (flag(key, usual) != wanted) refuse(key, "= {} is a function that tally does not have", !wanted);
}

void ForeignSettings::pass_over(std::initializer_list<std::string_view> keys) {
  read_.insert(keys.begin(), keys.end());
}

void ForeignSettings::refuse_unread() const {
  for (const std::string& name : ignored_) {
    check(object_.find(name) != nullptr, "import", "{}: there is no key '{}' that could be ignored", source_,
          escape_for_print(name, 60));
    check(!read_.contains(name), "import", "{}: '{}' says what the model computes and cannot be ignored", source_,
          escape_for_print(name, 60));
  }
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_.members()) {
    if (value.is_null() || read_.contains(name)) continue;
    const bool ignored = std::ranges::find(ignored_, name) != ignored_.end();
    const KeyEffect effect = effect_of(name, object_);
    if (effect == KeyEffect::changes) {
      refuse(escape_for_print(name, 60), "= {} changes what the model computes, and import does not read it",
             escape_for_print(write_json(value), 60));
    }
    if (effect == KeyEffect::unknown && !ignored && unknown.size() < 10) {
      unknown.push_back(formatted("'{}'", escape_for_print(name, 60)));
    }
  }
  check(unknown.empty(), "import",
        "{}: {}{} that tally knows, and may change what the model computes; --ignore-key NAME reads the model without",
        source_, joined(unknown), unknown.size() == 1 ? " is not a key" : " are not keys");
}

OwnSettings::OwnSettings(const RunConfig& config, std::string_view format) : config_(config), format_(format) {
  // These change how it is trained and computed, not the function.
  read_ = {"model.kind", "model.dropout", "model.init", "model.attention"};
  check(config.model.is_transformer(), "export", "{} cannot say model.kind = {}", format_, config.model.kind);
}

std::string OwnSettings::text(std::string_view name) {
  read_.emplace(name);
  for (const RunConfig::Field& field : config_.fields()) {
    if (field.name == name) return to_text(field.option.value);
  }
  check_internal(false, "export", "there is no option {}", name);
  return {};
}

std::int64_t OwnSettings::integer(std::string_view name) { return std::stoll(text(name)); }
double OwnSettings::real(std::string_view name) { return std::stod(text(name)); }

std::string OwnSettings::one_of(std::string_view name, std::initializer_list<std::string_view> values) {
  std::string value = text(name);
  if (std::ranges::find(values, value) != values.end()) return value;
  fail("export", "{} cannot say {} = {}; it has {}", format_, name, value,
       joined(std::vector<std::string>(values.begin(), values.end()), " or "));
}

void OwnSettings::demand_encoding(std::string_view encoding) const {
  check(config_.encoding.text() == encoding, "export", "{} cannot say --pe {}; its models have {}", format_,
        config_.encoding.text(), encoding);
}

void OwnSettings::refuse_unread() const {
  const RunConfig usual = RunConfig::make(config_.task->name, config_.encoding.text());
  const std::vector<RunConfig::Field> defaults = usual.fields();
  for (const RunConfig::Field& field : config_.fields()) {
    const bool of_function = field.name.starts_with("model.") || field.name.starts_with("pe.");
    if (!of_function || field.title.empty() || read_.contains(field.name)) continue;
    const auto plain = std::ranges::find(defaults, field.name, &RunConfig::Field::name);
    check(plain != defaults.end() && plain->option.value == field.option.value, "export", "{} cannot say {} = {}",
          format_, field.name, to_text(field.option.value));
  }
}

}  // namespace tally

#include "tasks/foreign/settings.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <sstream>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

using namespace std::string_view_literals;

// Whether a line of idle_keys.txt, "idle: use_cache torchscript", of this kind has the key.
bool is_listed(std::string_view kind, std::string_view key) {
  if (key.find(' ') != key.npos) return false;
  std::istringstream lines{std::string(data_file("idle_keys.txt"))};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kind) && (line + " ").find(formatted(" {} ", key)) != std::string::npos) return true;
  }
  return false;
}

bool is_false(const JsonValue& value, const JsonValue&) { return value.is_bool() && !value.boolean(); }
bool is_one(const JsonValue& value, const JsonValue&) { return value.is_number() && value.real() == 1; }
bool is_empty(const JsonValue& value, const JsonValue&) {
  return (value.is_object() && value.members().empty()) || (value.is_array() && value.elements().empty());
}
bool never(const JsonValue&, const JsonValue&) { return false; }
bool is_swiglu(const JsonValue& value, const JsonValue&) { return value.is_string() && value.string() == "swiglu"; }
// Qwen2 files have a window width even if their flag disables windows.
bool is_not_used(const JsonValue&, const JsonValue& object) {
  const JsonValue* const used = object.find("use_sliding_window");
  return used != nullptr && used->is_bool() && !used->boolean();
}
bool is_full_attention(const JsonValue& value, const JsonValue&) {
  return value.is_array() && std::ranges::all_of(value.elements(), [](const JsonValue& layer) {
           return layer.is_string() && layer.string() == "full_attention";
         });
}

struct Conditional {
  std::string_view key;
  bool (*is_idle)(const JsonValue& value, const JsonValue& object);
};
constexpr std::array conditional{
    Conditional{"rope_interleaved", is_false},    Conditional{"use_sliding_window", is_false},
    Conditional{"sliding_window", is_not_used},   Conditional{"layer_types", is_full_attention},
    Conditional{"use_mrope", is_false},           Conditional{"add_cross_attention", is_false},
    Conditional{"is_encoder_decoder", is_false},  Conditional{"pruned_heads", is_empty},
    Conditional{"qk_layernorm", is_false},        Conditional{"qk_layer_norms", is_false},
    Conditional{"use_qk_norm", is_false},         Conditional{"activation", is_swiglu},
    Conditional{"logit_scale", is_one},           Conditional{"embedding_multiplier", is_one},
    Conditional{"residual_multiplier", is_one},   Conditional{"logits_scaling", is_one},
    Conditional{"attn_logit_softcapping", never}, Conditional{"final_logit_softcapping", never},
    Conditional{"quantization_config", never},
};

}  // namespace

KeyEffect effect_of(std::string_view key, const JsonValue& object) {
  const auto found = std::ranges::find(conditional, key, &Conditional::key);
  if (found != conditional.end()) {
    return found->is_idle(object.at(key), object) ? KeyEffect::none : KeyEffect::changes;
  }
  // Notes of a library begin with an underscore: _attn_implementation, _num_labels.
  const bool none =
      key.starts_with('_') || key.starts_with("summary_") || is_about_the_file(key) || is_listed("idle:", key);
  return none ? KeyEffect::none : KeyEffect::unknown;
}

bool is_about_the_file(std::string_view key) { return is_listed("file:", key); }

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

std::vector<double> ForeignSettings::reals(std::string_view key) {
  std::vector<double> numbers;
  for (const JsonValue& element : take(key, true, &JsonValue::is_array, "an array of numbers")->elements()) {
    if (!element.is_number()) refuse(key, "must hold only numbers, not {}", element.kind());
    numbers.push_back(element.real());
  }
  return numbers;
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

JsonValue ForeignSettings::idle_members() const {
  for (const std::string& name : ignored_) {
    check(object_.find(name) != nullptr, "import", "{}: there is no key '{}' that could be ignored", source_,
          escape_for_print(name, 60));
    check(!read_.contains(name), "import", "{}: '{}' says what the model computes and cannot be ignored", source_,
          escape_for_print(name, 60));
  }
  JsonValue members = JsonValue::object();
  std::vector<std::string> unknown;
  for (const auto& [name, value] : object_.members()) {
    if (value.is_null() || read_.contains(name)) continue;
    const bool ignored = std::ranges::find(ignored_, name) != ignored_.end();
    const KeyEffect effect = effect_of(name, object_);
    if (effect == KeyEffect::changes) {
      refuse(escape_for_print(name, 60), "= {} changes what the model computes, and import does not read it",
             escape_for_print(write_json(value), 60));
    }
    if (effect == KeyEffect::unknown && !ignored) {
      if (unknown.size() < 10) unknown.push_back(formatted("'{}'", escape_for_print(name, 60)));
    } else if (!is_about_the_file(name)) {
      members.set(name, value);
    }
  }
  check(unknown.empty(), "import",
        "{}: {}{} that tally knows, and may change what the model computes; --ignore-key NAME reads the model without",
        source_, joined(unknown), unknown.size() == 1 ? " is not a key" : " are not keys");
  return members;
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

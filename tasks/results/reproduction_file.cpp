// Tables of papers, read from JSON.
#include <map>
#include <set>

#include "core/error.hpp"
#include "nn/encoding/choice.hpp"
#include "nn/options.hpp"
#include "tasks/results/reproduction.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

constexpr const char* where = "reproduce";

void check_scales(const JsonValue& value) { check_keys(where, value, {"quick", "paper"}); }

// One value, or an object with a value for each scale. Empty if the member is missing.
Scaled scaled(const JsonValue& object, std::string_view key) {
  const JsonValue* const value = object.find(key);
  if (value == nullptr) return {};
  if (!value->is_object()) return Scaled(object.string(key));
  check_scales(*value);
  return {value->string("quick"), value->string("paper")};
}

ScaledNumber scaled_number(const JsonValue& object, std::string_view key) {
  const JsonValue* const value = object.find(key);
  if (value == nullptr) return {};
  if (!value->is_object()) return {object.real(key), object.real(key)};
  check_scales(*value);
  return {value->real("quick"), value->real("paper")};
}

// An omitted scale has no settings.
Scaled settings_in(const JsonValue& object, std::string_view key) {
  const JsonValue* const value = object.find(key);
  if (value == nullptr || !value->is_object()) return Scaled(optional_text(object, key));
  check_scales(*value);
  return {optional_text(*value, "quick"), optional_text(*value, "paper")};
}

Printed printed(const JsonValue& value) {
  if (value.is_null()) return {};
  if (value.is_number()) return {value.real()};
  if (!value.is_array() || value.elements().size() != 2) {
    fail(where, "'printed' must hold numbers, [mean, deviation] or null, but has {}", write_json(value));
  }
  return {value.elements()[0].real(), value.elements()[1].real()};
}

// The entry of a name in the file.
template <class Value>
const Value& find_named(const std::map<std::string, Value>& known, const std::string& name, std::string_view what) {
  const auto found = known.find(name);
  check(found != known.end(), where, "there is no {} '{}'", what, name);
  return found->second;
}

class TableFile {
 public:
  TableFile(std::string_view text, std::string file) : json_(parse_json(text, {}, file)), file_(std::move(file)) {}

  std::vector<Reproduction> tables() {
    in_file(file_, [&] { check_keys(where, json_, {"texts", "choices", "tables"}); });
    each("texts", [&](const std::string& name, const JsonValue& json) {
      check_keys(where, json, {"preset", "data", "made-by"});
      texts_[name] = std::make_shared<const ReproductionText>(
          ReproductionText{scaled(json, "preset"), scaled(json, "data"), scaled(json, "made-by")});
    });
    each("choices", [&](const std::string& name, const JsonValue& json) { choices_[name] = choices(json); });
    std::vector<Reproduction> all;
    each("tables", [&](const std::string& name, const JsonValue& json) { all.push_back(table(name, json)); });
    return all;
  }

 private:
  template <class Take>
  void each(const char* kind, const Take& take) const {
    if (json_.contains(kind)) for_each_entry(json_.at(kind), file_, take);
  }

  std::vector<OpenChoice> choices(const JsonValue& list) const {
    std::vector<OpenChoice> all;
    for (const JsonValue& one : list.elements()) {
      if (one.is_string()) {
        const std::vector<OpenChoice>& named = find_named(choices_, one.string(), "list of choices");
        all.insert(all.end(), named.begin(), named.end());
        continue;
      }
      check_keys(where, one, {"what", "chosen", "why"});
      for (const char* key : {"what", "chosen", "why"}) one.at(key);
      all.push_back({scaled(one, "what"), scaled(one, "chosen"), scaled(one, "why")});
    }
    return all;
  }

  ReproductionColumn column(const JsonValue& json) const {
    check_keys(where, json,
               {"title", "task", "split", "settings", "share", "generated", "unit", "text", "context", "preset"});
    json.at("title");
    ReproductionColumn column{.title = scaled(json, "title"),
                              .task = optional_text(json, "task"),
                              .split = optional_text(json, "split"),
                              .settings = settings_in(json, "settings"),
                              .share = json.contains("share") ? json.real("share") : 1,
                              .generated = json.contains("generated") && json.boolean("generated"),
                              .unit = optional_text(json, "unit"),
                              .context = scaled_number(json, "context"),
                              .preset = scaled(json, "preset")};
    check(column.share > 0 && column.share <= 1, where, "'share' must be above 0 and at most 1, got {}", column.share);
    if (json.contains("text")) column.text = find_named(texts_, json.string("text"), "text");
    check(!column.task.empty() || !column.unit.empty(), where,
          "a column without a task needs the 'unit' of its numbers");
    check(column.task.empty() == column.split.empty(), where, "'task' and 'split' go together");
    if (!column.task.empty()) find_task(column.task);
    return column;
  }

  // Appends one row, or one for each encoding.
  static void add_rows(std::vector<ReproductionRow>& rows, const JsonValue& json) {
    if (json.is_object() && json.contains("every-encoding")) {
      check_keys(where, json, {"every-encoding"});
      std::map<std::string, std::string> others;
      for (const EncodingEntry* entry : encoding_registry()) others[entry->name] = entry->name;
      for (const JsonMember& other : json.members("every-encoding")) {
        find_named(others, other.name, "encoding");
        others[other.name] = other.value.string();
      }
      for (const EncodingEntry* entry : encoding_registry()) rows.push_back({others[entry->name], others[entry->name]});
      return;
    }
    check_keys(where, json, {"label", "encoding", "settings", "printed", "beyond"});
    json.at("encoding");
    ReproductionRow row{.label = "",
                        .encoding = scaled(json, "encoding"),
                        .settings = settings_in(json, "settings"),
                        .beyond = settings_in(json, "beyond")};
    row.label = json.contains("label") ? json.string("label") : row.encoding.quick;
    if (json.contains("printed")) {
      for (const JsonValue& number : json.elements("printed")) row.printed.push_back(printed(number));
    }
    rows.push_back(std::move(row));
  }

  // Errors give the number of the element.
  template <class Take>
  static void each_of(const JsonValue& json, const char* key, const char* one, const Take& take) {
    std::size_t number = 0;
    for (const JsonValue& element : json.elements(key))
      in_file(formatted("{} {}", one, ++number), [&] { take(element); });
  }

  // Throws Error for a preset or an encoding that does not exist.
  static void check_names(const Reproduction& table, Scale scale) {
    for (const ReproductionColumn& column : table.columns) {
      if (column.task.empty()) continue;
      in_file(formatted("column '{}'", column.title.at(scale)),
              [&] { find_preset(column.task, preset_of(column, scale)); });
    }
    for (const ReproductionRow& row : table.rows) {
      if (scale == Scale::paper && row.encoding.paper == row.encoding.quick) continue;
      in_file(formatted("row '{}'", row.label), [&] { EncodingChoice::parse(row.encoding.at(scale)); });
    }
  }

  Reproduction table(const std::string& name, const JsonValue& json) const {
    check_keys(where, json,
               {"title", "source", "note", "aliases", "published", "curves", "columns", "rows", "choices"});
    Reproduction table{.name = name,
                       .title = json.string("title"),
                       .source = json.string("source"),
                       .columns = {},
                       .rows = {},
                       .curves = json.contains("curves") && json.boolean("curves"),
                       .aliases = texts_in(json, "aliases"),
                       .published = !json.contains("published") || json.boolean("published"),
                       .note = optional_text(json, "note")};
    each_of(json, "columns", "column", [&](const JsonValue& one) { table.columns.push_back(column(one)); });
    each_of(json, "rows", "row", [&](const JsonValue& one) { add_rows(table.rows, one); });
    if (json.contains("choices")) table.choices = choices(json.at("choices"));
    check(!table.columns.empty() && !table.rows.empty(), where, "a table needs columns and rows");
    std::set<std::string> labels;
    for (const ReproductionRow& row : table.rows) {
      check(labels.insert(row.label).second, where, "two rows are called '{}'", row.label);
      check(row.printed.size() <= table.columns.size(), where, "row '{}' has {} printed numbers for {} columns",
            row.label, row.printed.size(), table.columns.size());
    }
    check_names(table, Scale::quick);
    if (table.published) check_names(table, Scale::paper);
    return table;
  }

  JsonValue json_;
  std::string file_;
  std::map<std::string, std::shared_ptr<const ReproductionText>> texts_;
  std::map<std::string, std::vector<OpenChoice>> choices_;
};

}  // namespace

std::vector<Reproduction> read_reproductions(std::string_view json, const std::string& file) {
  return TableFile(json, file).tables();
}

const std::vector<Reproduction>& reproduction_registry() {
  static const std::vector<Reproduction> tables =
      read_reproductions(data_file("reproductions.json"), "tasks/reproductions.json");
  return tables;
}

}  // namespace tally

#include "tasks/model_record.hpp"

#include "core/error.hpp"
#include "core/utf8.hpp"

namespace tally {

std::map<std::string, std::string> settings_of(const RunConfig& config) {
  std::map<std::string, std::string> settings;
  for (const RunConfig::Group& group : config.groups()) {
    for (const OptionInfo& option : group.options) settings[group.prefix + option.name] = to_text(option.value);
  }
  settings.erase("seed");
  return settings;
}

ModelRecord model_record(const RunConfig& config, const Task& task) {
  ModelRecord record = settings_of(config);
  std::erase_if(record, [](const auto& setting) {
    const std::string& name = setting.first;
    const bool of_no_effect = name == "model.dropout" || name == "model.init" || name == "model.attention";
    return of_no_effect || !(name.starts_with("model.") || name.starts_with("pe."));
  });
  record.insert({{"task", config.task->name},
                 {"pe", config.encoding.text()},
                 {"dtype", config.run.dtype},
                 {"vocabulary", task.vocabulary_record()}});
  return record;
}

std::string model_record_text(const ModelRecord& record) {
  JsonValue json = JsonValue::object();
  for (const auto& [name, value] : record) json.set(name, value);
  return write_json(json);
}

ModelRecord model_record_from_text(const std::string& text, const std::string& source) {
  const JsonValue json = parse_json(text, {.max_depth = 2, .max_values = 10'000}, source);
  return in_file(source, [&] {
    check(json.is_object(), "model", "must be an object, not ", json.kind());
    ModelRecord record;
    for (const JsonMember& member : json.members()) record[member.name] = json.string(member.name);
    return record;
  });
}

void check_same_model(const ModelRecord& record, const RunConfig& config, const Task& task) {
  const ModelRecord own = model_record(config, task);
  const auto compare = [&](const std::string& name, const std::string& recorded) {
    const auto now = own.find(name);
    check(now != own.end(), "model", "it was made with ", name, " ", recorded, ", which the configuration has not");
    check(now->second == recorded, "model", "it was made with ", name, " ", recorded, ", the configuration has ",
          now->second);
  };
  // With another task or encoding all their settings are others: these come first.
  for (const char* first : {"task", "pe"}) {
    if (const auto recorded = record.find(first); recorded != record.end()) compare(first, recorded->second);
  }
  for (const auto& [name, recorded] : record) compare(name, recorded);
}

void check_same_data(const std::string& record, const Task& task) {
  check(record.empty() || record == task.data_record(), "data",
        "it was trained on other data: ", escape_for_print(record, 1000), "; now there is ",
        escape_for_print(task.data_record(), 1000));
}

}  // namespace tally

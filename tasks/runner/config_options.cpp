#include "tasks/runner/config_options.hpp"

#include <CLI/CLI.hpp>

#include "tasks/preset.hpp"

namespace tally {
namespace {

const JsonLimits config_limits{.max_depth = 16, .max_members = 10'000};

std::string describe(const OptionInfo& option) {
  std::string text = option.help;
  if (!option.allowed.empty()) {
    text += " (";
    for (std::size_t i = 0; i < option.allowed.size(); ++i) text += concat(i > 0 ? "|" : "", option.allowed[i]);
    text += ")";
  }
  return text;
}

// "pe.cope.p-max" is also "pe.p-max" where one encoding alone has it; "task.length" is also "length".
std::string names_of(const RunConfig& config, const RunConfig::Group& group, const OptionInfo& option) {
  std::string names = concat("--", group.prefix, option.name);
  if (group.prefix.starts_with("pe.")) {
    int holders = 0;
    for (const auto& other : config.groups()) {
      if (!other.prefix.starts_with("pe.")) continue;
      for (const OptionInfo& candidate : other.options) holders += candidate.name == option.name;
    }
    if (holders == 1) names += concat(",--pe.", option.name);
  }
  if (group.prefix == "task." && option.name == "length") names += ",--length";
  return names;
}

// Another encoding than the file's: options of parts that it does not have are left out.
void replace_encoding(JsonValue& json, const std::string& encoding) {
  json.set("pe", encoding);
  if (!json.contains("pe-options") || !json.at("pe-options").is_object()) return;
  JsonValue kept = JsonValue::object();
  for (const auto& part : EncodingChoice::parse(encoding).parts) {
    const JsonValue* options = json.at("pe-options").find(part.entry->name);
    if (options != nullptr) kept.set(part.entry->name, *options);
  }
  json.set("pe-options", std::move(kept));
}

}  // namespace

void ConfigOptions::declare_groups(CLI::App& app, const RunConfig& config,
                                   const std::function<bool(std::string_view name)>& wanted) {
  for (const RunConfig::Group& group : config.groups()) {
    for (const OptionInfo& option : group.options) {
      const std::string name = group.prefix + option.name;
      if (!wanted(name)) continue;
      const bool is_flag = std::holds_alternative<bool>(option.value);
      app.add_option_function<std::string>(
             names_of(config, group, option),
             [this, name, is_flag](const std::string& value) {
               settings_.emplace_back(name, is_flag && value.empty() ? "true" : value);
             },
             describe(option))
          ->expected(is_flag ? 0 : 1, 1)
          ->type_name("")
          ->default_str(to_text(option.value))
          ->group(group.title);
    }
  }
}

std::shared_ptr<ConfigOptions> ConfigOptions::declare(CLI::App& app, const std::vector<std::string>& arguments) {
  auto options = std::make_shared<ConfigOptions>();
  app.add_option("--task", options->task_, "what to train on ('tally list tasks')")->group("What");
  app.add_option("--pe", options->encoding_, "position encoding, or a sum: cope, cope+rope ('tally list encodings')")
      ->group("What");
  app.add_option("--preset", options->preset_, "the task's settings: paper, quick ('tally list presets')")
      ->group("What");
  app.add_option("--config", options->file_, "JSON file of settings; single options win over it")->group("What");
  as_usage([&] {
    ConfigOptions ahead;
    ahead.task_ = look_ahead(arguments, "--task");
    ahead.encoding_ = look_ahead(arguments, "--pe");
    ahead.preset_ = look_ahead(arguments, "--preset");
    ahead.file_ = look_ahead(arguments, "--config");
    if (ahead.file_.empty()) {
      if (ahead.task_.empty()) ahead.task_ = "flip-flop", ahead.preset_.clear();
      if (ahead.encoding_.empty()) ahead.encoding_ = "none";
    }
    options->declare_groups(app, ahead.resolve(), [](std::string_view) { return true; });
    return 0;
  });
  return options;
}

std::shared_ptr<ConfigOptions> ConfigOptions::declare_for(
    CLI::App& app, const RunConfig& config, const std::function<bool(std::string_view name)>& wanted) {
  auto options = std::make_shared<ConfigOptions>();
  options->declare_groups(app, config, wanted);
  return options;
}

RunConfig ConfigOptions::resolve() const {
  return as_usage([this] {
    RunConfig config;
    if (!file_.empty()) {
      JsonValue json = read_json(file_, config_limits);
      check(json.is_object(), "config", file_, " must hold an object, not ", json.kind());
      if (!preset_.empty()) json.set("preset", preset_);
      if (!encoding_.empty()) replace_encoding(json, encoding_);
      if (!task_.empty() && !(json.contains("task") && json.at("task").is_object() &&
                              json.at("task").contains("name") && json.at("task").at("name") == JsonValue(task_))) {
        json.set("task", JsonValue::object({{"name", task_}}));
      }
      config = RunConfig::from_json(json);
    } else {
      check(!task_.empty(), "usage", "--task is missing; 'tally list tasks' shows what there is");
      check(!encoding_.empty(), "usage", "--pe is missing; 'tally list encodings' shows what there is");
      config = RunConfig::make(task_, encoding_, preset_);
    }
    apply(config);
    config.validate();
    return config;
  });
}

void ConfigOptions::apply(RunConfig& config) const {
  as_usage([&] {
    for (const auto& [name, value] : settings_) config.set(name, value);
    return 0;
  });
}

std::string config_text(const RunConfig& config) {
  std::string text = concat("task ", config.task->name, ", encoding ", config.encoding.text(),
                            config.preset.empty() ? "" : concat(", preset ", config.preset), "\n");
  for (const RunConfig::Group& group : config.groups()) {
    if (group.options.empty()) continue;
    text += concat(group.title, ":");
    for (const OptionInfo& option : group.options)
      text += concat(" ", group.prefix, option.name, "=", to_text(option.value));
    text += "\n";
  }
  return text;
}

}  // namespace tally

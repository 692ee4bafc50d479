#include "tasks/command_line/config_options.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "tasks/command_line/command.hpp"
#include "tasks/runs/checkpoint.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/preset.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::vector<std::string> split_text(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::vector<GridDimension> parse_grid(const std::vector<std::string>& texts, std::string_view option) {
  std::vector<GridDimension> dimensions;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw UsageError(formatted("[usage] {} takes key=value,value, not '{}'", option, text));
    }
    GridDimension dimension{option_spelling(text.substr(0, equals)), split_text(text.substr(equals + 1), ',')};
    const bool twice = std::any_of(dimensions.begin(), dimensions.end(),
                                   [&](const GridDimension& other) { return other.key == dimension.key; });
    if (twice) throw UsageError(formatted("[usage] {} {} is there twice", option, dimension.key));
    dimensions.push_back(std::move(dimension));
  }
  return dimensions;
}

std::vector<Settings> combinations(const std::vector<GridDimension>& dimensions) {
  std::vector<Settings> all(1);
  for (const GridDimension& dimension : dimensions) {
    std::vector<Settings> longer;
    for (const Settings& settings : all) {
      for (const std::string& value : dimension.values) {
        longer.push_back(settings);
        longer.back().emplace_back(dimension.key, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

namespace {

const JsonLimits config_limits{.max_depth = 16, .max_values = 10'000};

constexpr const char* any_task = "flip-flop";  // used when only the options outside the task matter
constexpr const char* about_encodings =
    "Options of an encoding, --pe.<name>, are listed here when it is named too: --help --pe cope.";

std::string describe(const OptionInfo& option) {
  const bool flag = std::holds_alternative<bool>(option.value);
  return flag ? formatted("{} [{}]", option.help, to_text(option.value)) : option.help_with_range();
}

// Replaces the encoding of the file and drops options of parts that the new one does not have.
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

std::vector<std::string> split_encodings(const std::string& text) {
  if (text.find(';') != std::string::npos) return split_text(text, ';');
  if (text.find_first_of(":@") != std::string::npos) return {text};
  std::vector<std::string> elements(1);
  bool in_bracket = false;  // rope[window=256,first=4]
  for (const char c : text) {
    if (c == '[' || c == ']') in_bracket = c == '[';
    if (c == ',' && !in_bracket) {
      elements.emplace_back();
    } else {
      elements.back() += c;
    }
  }
  return elements;
}

std::string sum_of(const std::vector<std::string>& encodings) {
  std::vector<std::string> names;
  for (const std::string& encoding : encodings) {
    if (encoding.empty()) continue;
    for (const auto& part : EncodingChoice::parse(encoding).parts) {
      if (std::ranges::count(names, part.entry->name) == 0) names.push_back(part.entry->name);
    }
  }
  return joined(names, "+");
}

void ConfigOptions::declare_fields(CommandLine& line, const RunConfig& given, const Wanted& wanted,
                                   const std::vector<std::string>& needs) {
  RunConfig config = given.clone();
  const std::string rule = line.look_ahead("--optimiser.name");
  if (!rule.empty()) as_usage([&] { config.set("optimiser.name", rule); });
  std::set<std::string> ambiguous;
  for (const RunConfig::Field& field : config.fields()) {
    if (!wanted(field.name)) continue;
    const bool flag = std::holds_alternative<bool>(field.option.value);
    const auto set = [this, name = field.name, flag](const std::string& value) {
      // The update rule decides which other options exist.
      const auto before = name == "optimiser.name" ? settings_.begin() : settings_.end();
      settings_.emplace(before, name, flag && value.empty() ? "true" : value);
    };
    line.add(formatted("--{}{}{}", field.name, field.alias.empty() ? "" : ",--", field.alias), set,
             describe(field.option),
             {.group = field.title, .needs = needs, .flag = flag, .usual = to_text(field.option.value)});
    if (field.name.starts_with("pe.") && field.alias.empty()) ambiguous.insert(field.option.name);
  }
  // An option that several encodings share needs the name of one of them. Without it, the error lists the candidates.
  const auto choice = std::make_shared<EncodingChoice>(config.encoding.clone());
  for (const std::string& name : ambiguous) {
    const auto set = [choice, name](const std::string& value) { as_usage([&] { choice->set_option(name, value); }); };
    line.add("--pe." + name, set, "", {.group = "", .flag = true});
  }
}

std::shared_ptr<ConfigOptions> ConfigOptions::declare(CommandLine& line, bool several) {
  auto options = std::make_shared<ConfigOptions>();
  line.add("--task", &options->task_, "what to train on ('tally describe tasks')");
  line.add("--pe", &options->encoding_,
           several
               ? "position encodings with commas between them: cope,rope,cope+rope; with semicolons where one "
                 "names layers or heads: 'cope;0:none,1-3:cope'"
               : "position encoding, a combination (cope+rope), or an assignment: by layer (0:none,1-3:cope), by heads "
                 "(cope@0-1,alibi@2-3), or both (0:rope,1-3:cope@0-1,alibi@2-3: an assignment without layers goes on "
                 "with those before it); 'tally describe encodings' shows them");
  line.add("--preset", &options->preset_,
           formatted("the task's settings: {} ('tally describe presets')", preset_names(line.look_ahead("--task"))));
  line.add("--config", &options->file_, "JSON file of settings; options on the command line override it");
  if (!several) {
    line.add("--from", &options->from_,
             "folder of a finished run: start with its weights and settings, with another --pe, learning rate or "
             "number of steps. Parameters that only one of the two encodings has start fresh or are dropped",
             {.excludes = {"--task", "--preset", "--config"}});
  }
  as_usage([&] {
    ConfigOptions ahead;
    ahead.task_ = line.look_ahead("--task");
    ahead.encoding_ = line.look_ahead("--pe");
    ahead.preset_ = line.look_ahead("--preset");
    ahead.file_ = line.look_ahead("--config");
    ahead.from_ = several ? "" : line.look_ahead("--from");
    if (several && !ahead.encoding_.empty()) ahead.encoding_ = sum_of(split_encodings(ahead.encoding_));
    if (ahead.file_.empty() && ahead.from_.empty()) {
      if (ahead.task_.empty()) ahead.task_ = any_task, ahead.preset_.clear();
      if (ahead.encoding_.empty()) {
        ahead.encoding_ = "none";
        line.footer = about_encodings;
      }
    }
    options->declare_fields(line, ahead.begin(ahead.encoding_),
                            [several](std::string_view name) { return !several || name != "seed"; });
  });
  return options;
}

std::shared_ptr<ConfigOptions> ConfigOptions::declare_for(CommandLine& line, const RunConfig& config,
                                                          const Wanted& wanted, const std::vector<std::string>& needs) {
  auto options = std::make_shared<ConfigOptions>();
  options->declare_fields(line, config, wanted, needs);
  return options;
}

std::shared_ptr<ConfigOptions> ConfigOptions::declare_for_encodings(CommandLine& line,
                                                                    const std::vector<std::string>& names) {
  const std::string all = as_usage([&] { return sum_of(names); });
  if (all.empty()) {
    line.footer = about_encodings;
    return std::make_shared<ConfigOptions>();
  }
  return declare_for(line, RunConfig::make(any_task, all),
                     [](std::string_view name) { return name.starts_with("pe."); });
}

std::vector<std::string> ConfigOptions::encodings() const {
  const std::string text = encoding_.empty() ? missing_encoding() : encoding_;
  if (text.empty()) throw UsageError("[usage] --pe is missing; 'tally describe encodings' shows what there is");
  return split_encodings(text);
}

std::string ConfigOptions::missing_encoding() const {
  ModelOptions model;
  for (const auto& [name, value] : settings_) {
    if (name == "model.kind") set_option(model, "model", "kind", value);
  }
  return model.is_transformer() ? "" : "none";
}

RunConfig ConfigOptions::resolve() const {
  RunConfig config = begin(encoding_);
  config.shorten_warmup();
  check_whole(config);
  return config;
}

void ConfigOptions::check_whole(const RunConfig& config) const {
  as_usage([&] {
    blaming_file([&] {
      config.validate();
      config.refuse_idle();
    });
    config.make_task();
  });
}

RunConfig ConfigOptions::begin(const std::string& wanted) const {
  return as_usage([&] {
    RunConfig config;
    const bool has_settings = !file_.empty() || !from_.empty();
    const std::string encoding = wanted.empty() && !has_settings ? missing_encoding() : wanted;
    check(file_.empty() || preset_.empty(), "usage",
          "--config and --preset exclude each other: the file sets what the preset would set");
    if (has_settings) {
      JsonValue json = from_.empty() ? read_json(file_, config_limits) : RunFolder::open(from_).config().to_json();
      check(json.is_object(), "config", "{} must hold an object, not {}", file_, json.kind());
      json.remove("from");  // the start of that run
      if (!encoding.empty()) replace_encoding(json, encoding);
      if (!task_.empty() && !(json.contains("task") && json.at("task").is_object() &&
                              json.at("task").contains("name") && json.at("task").at("name") == JsonValue(task_))) {
        json.set("task", JsonValue::object({{"name", task_}}));
      }
      config = blaming_file([&] { return RunConfig::from_json(json); });
    } else {
      check(!task_.empty(), "usage", "--task is missing; 'tally describe tasks' shows what there is");
      check(!encoding.empty(), "usage", "--pe is missing; 'tally describe encodings' shows what there is");
      config = RunConfig::make(task_, encoding, preset_);
    }
    apply(config);
    return config;
  });
}

std::vector<std::string> ConfigOptions::given_of_encodings() const {
  constexpr std::string_view prefix = "pe.";
  std::vector<std::string> names;
  for (const auto& [name, value] : settings_) {
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  return names;
}

EncodingChoice ConfigOptions::encoding(const std::string& name) const {
  return as_usage([&] {
    RunConfig config = RunConfig::make(any_task, name);
    apply(config);
    return std::move(config.encoding);
  });
}

void ConfigOptions::apply(RunConfig& config) const {
  as_usage([&] {
    for (const auto& [name, value] : settings_) {
      const bool of_another = name.starts_with("pe.") && !config.has(name);
      if (!of_another) config.set(name, value);
    }
  });
}

std::string config_text(const RunConfig& config, bool all) {
  constexpr std::size_t columns = 100;
  std::string text = formatted("task {}, encoding {}{}{}\n", config.task->name, config.encoding.text(),
                               config.preset.empty() ? "" : formatted(", preset {}", config.preset),
                               all ? "" : "; settings that differ from the defaults:");
  const std::vector<RunConfig::Group> groups = config.groups();
  std::size_t indent = 0;
  for (const RunConfig::Group& group : groups) indent = std::max(indent, group.title.size() + 4);
  const ModelRecord usual = settings_of(RunConfig::make(config.task->name, config.encoding.text()));
  for (const RunConfig::Group& group : groups) {
    std::string line = formatted("  {}{}", group.title, std::string(indent - 2 - group.title.size(), ' '));
    const std::size_t empty = line.size();
    for (const OptionInfo& option : group.options) {
      const std::string name = group.prefix + option.name, value = to_text(option.value);
      if (const auto known = usual.find(name); !all && known != usual.end() && known->second == value) continue;
      const std::string word = formatted("{}={}", name, value);
      if (line.size() > empty && line.size() - (line.rfind('\n') + 1) + word.size() > columns) {
        line += "\n" + std::string(indent, ' ');
      } else if (line.size() > empty) {
        line += " ";
      }
      line += word;
    }
    if (line.size() > empty) text += line + "\n";
  }
  if (const std::string note = config.warmup_note(); !note.empty()) text += note + "\n";
  for (const std::string& line : config.encoding.notes()) text += line + "\n";
  text.pop_back();
  return text;
}

}  // namespace tally

// Presets: look-up by task and name; their settings are valid for the task; the published settings.
#include "tasks/runs/preset.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include "tasks/runs/config.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::preset_test {

using testing::error_of;

std::map<std::string, std::string> settings_of(std::string_view task, std::string_view name) {
  const PresetEntry& preset = find_preset(task, name);
  return {preset.settings.begin(), preset.settings.end()};
}

TEST(Presets, OneOnAnotherChangesWhatItNames) {
  const auto quick = settings_of("flip-flop", "quick");
  auto expected = quick;
  expected["task.eval-count"] = "1000";
  expected["task.dense-count"] = "300";
  expected["eval-count"] = "300";
  EXPECT_EQ(settings_of("flip-flop", "demo"), expected);
  const std::vector<PresetEntry> presets = read_presets(R"({
    "shared": {"summary": "a base", "source": "a paper", "note": "of the base", "settings": ["steps=1 batch=2", "lr=3"]},
    "parity/second": {"summary": "b", "base": "shared", "settings": "eval-every=4 batch=5", "note": "its own"},
    "parity/first": {"summary": "c", "base": "parity/second", "settings": []}})",
                                                        "p.json");
  ASSERT_EQ(presets.size(), 2u) << "a base is no preset";
  EXPECT_EQ(formatted("{}/{}", presets[0].task, presets[0].name), "parity/first") << "sorted";
  const PresetEntry& second = presets[1];
  EXPECT_EQ(second.settings, (tally::Settings{{"steps", "1"}, {"batch", "5"}, {"lr", "3"}, {"eval-every", "4"}}));
  EXPECT_EQ(presets[0].settings, second.settings);
  EXPECT_EQ(second.summary, "b");
  EXPECT_EQ(second.source, "a paper");
  EXPECT_EQ(second.note, "its own");
}

// The order of the file excludes cycles of bases.
TEST(Presets, WrongFilesAreRefused) {
  const auto error = [](const std::string& text) { return error_of([&] { read_presets(text, "p.json"); }); };
  const std::string file =
      R"({"base": {"summary": "s", "settings": ""}, "parity/p": {"summary": "s", "settings": ""}})";
  EXPECT_EQ(error(file), "");
  // The replacement of a part of the second entry, and the beginning of the error.
  for (const auto& [from, to, message] : std::vector<std::array<std::string, 3>>{
           {R"("summary": "s", "settings": ""}})", R"("sumary": "s", "settings": ""}})",
            "parity/p: [preset] unknown key 'sumary'; did you mean 'summary'?"},
           {R"("summary": "s", "settings": ""}})", R"("settings": "steps=5"}})",
            "parity/p: [json] 'summary' is missing"},
           {R"("settings": ""}})", R"("base": "s"}})",
            "parity/p: [preset] its base 's' is no entry before it in the file"},
           {R"(, "settings": ""}})", "}}", "parity/p: [preset] 'settings' is missing"},
           {R"("settings": ""}})", R"("settings": ["steps=5", 6]}})",
            "parity/p: [json] 'settings' must hold strings, but has an integer"},
           {R"("settings": ""}})", R"("settings": "steps 5"}})", "parity/p: [preset] 'steps' is not option=value"},
           {"parity/p", "party/p", "party/p: [task] unknown task 'party'; did you mean 'parity'? Known ar"}}) {
    std::string changed = file;
    ASSERT_NE(changed.rfind(from), changed.npos) << from;
    changed.replace(changed.rfind(from), from.size(), to);
    EXPECT_TRUE(error(changed).starts_with("p.json: " + message)) << error(changed);
  }
  EXPECT_EQ(error("[]"), "p.json: [json] expected an object, found an array");
  EXPECT_EQ(error_of([] { find_preset("flip-flop", "fast"); }),
            "[preset] the task 'flip-flop' has no preset 'fast'; it has demo, paper, quick");
}

std::map<std::string, std::string> values_of(const RunConfig& config) {
  std::map<std::string, std::string> values;
  for (const RunConfig::Group& group : config.groups()) {
    for (const OptionInfo& option : group.options) values[group.prefix + option.name] = to_text(option.value);
  }
  return values;
}

// Settings stated by the papers are present, even if they equal a default.
TEST(Presets, ThePapersSettings) {
  auto flip_flop = values_of(RunConfig::make("flip-flop", "cope", "paper"));
  auto copy = values_of(RunConfig::make("selective-copy", "cope", "paper"));
  auto counting = values_of(RunConfig::make("counting", "cope", "paper"));
  using Values = std::vector<std::string>;
  const auto of = [](auto& values, const Values& names) {
    Values found;
    for (const std::string& name : names) found.push_back(values[name]);
    return found;
  };
  const Values model{"model.layers", "model.width", "model.heads", "model.dropout", "pe.cope.p-max", "steps", "batch"};
  EXPECT_EQ(of(flip_flop, model), (Values{"4", "256", "4", "0", "64", "10000", "16"}));
  EXPECT_EQ(of(copy, model), (Values{"2", "64", "2", "0", "512", "100000", "64"}));
  EXPECT_EQ(of(counting, model), (Values{"4", "256", "4", "0.1", "512", "15700", "64"}));
  const Values optimiser{"optimiser.name", "optimiser.lr", "optimiser.weight-decay", "optimiser.schedule"};
  EXPECT_EQ(of(flip_flop, optimiser), (Values{"adamw", "0.0003", "0.1", "linear"}));
  EXPECT_EQ(of(counting, optimiser), (Values{"adam", "0.00007", "0", "constant"}));
}

// Every task has quick. The run and the task accept every name and value; options of encodings reach the chosen
// encoding.
TEST(Presets, AreAcceptedByTheRun) {
  for (const TaskEntry* entry : task_registry()) {
    if (entry->reads_files) continue;
    EXPECT_EQ(find_preset(entry->name, "quick").task, entry->name);
  }
  for (const PresetEntry& preset : preset_registry()) {
    SCOPED_TRACE(preset.task + " " + preset.name);
    EXPECT_FALSE(preset.summary.empty());
    for (const char* encoding : {"none", "cope", "relative", "cope+relative"}) {
      const RunConfig config = RunConfig::make(preset.task, encoding, preset.name);
      EXPECT_NO_THROW(config.validate()) << encoding;
      if (find_task(preset.task).reads_files) continue;
      const auto task = config.make_task();
      for (const Split& split : task->splits()) EXPECT_FALSE(task->example(split.name, 0).tokens.empty());
    }
    auto values = values_of(RunConfig::make(preset.task, "cope+relative", preset.name));
    for (const auto& [name, value] : preset.settings) {
      const bool is_number = value.find_first_of("0123456789") == 0;
      if (is_number) {
        EXPECT_EQ(std::stod(values[name]), std::stod(value)) << name;
      } else {
        EXPECT_EQ(values[name], value) << name;
      }
    }
  }
}

}  // namespace tally::preset_test

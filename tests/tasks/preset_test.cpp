// Presets: look-up by task and name; their settings are valid for the task; the published settings.
#include "tasks/runs/preset.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/runs/config.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally {
namespace preset_test {

using testing::error_of;
using testing::Settings;

constexpr std::string_view task_prefix = "task.";

std::map<std::string, std::string> settings_of(std::string_view task, std::string_view name) {
  const PresetEntry& preset = find_preset(task, name);
  return {preset.settings.begin(), preset.settings.end()};
}

std::unique_ptr<Task> task_of(const PresetEntry& preset) {
  Settings settings;
  for (const auto& [name, value] : preset.settings) {
    if (name.starts_with(task_prefix)) settings.emplace_back(name.substr(task_prefix.size()), value);
  }
  return testing::make_task(preset.task, settings);
}

TEST(Presets, EveryTaskHasQuick) {
  for (const TaskEntry* entry : task_registry()) {
    if (entry->reads_files) continue;
    EXPECT_EQ(find_preset(entry->name, "quick").task, entry->name);
  }
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

TEST(Presets, WrongFilesAreRefused) {
  const auto error = [](const std::string& text) { return error_of([&] { read_presets(text, "p.json"); }); };
  const auto one = [&](const std::string& members) { return error("{\"parity/p\": {" + members + "}}"); };
  EXPECT_EQ(one(R"("sumary": "s", "settings": "")"),
            "p.json: parity/p: [preset] unknown key 'sumary'; did you mean 'summary'?");
  EXPECT_EQ(one(R"("settings": "steps=5")"), "p.json: parity/p: [json] 'summary' is missing");
  EXPECT_EQ(one(R"("summary": "s")"), "p.json: parity/p: [preset] 'settings' is missing");
  EXPECT_EQ(one(R"("summary": 1, "settings": "")"),
            "p.json: parity/p: [json] 'summary' must be a string, but is an integer");
  EXPECT_EQ(one(R"("summary": "s", "settings": ["steps=5", 6])"),
            "p.json: parity/p: [json] 'settings' must hold strings, but has an integer");
  EXPECT_EQ(one(R"("summary": "s", "settings": "steps 5")"), "p.json: parity/p: [preset] 'steps' is not option=value");
  EXPECT_EQ(one(R"("summary": "s", "settings": ["steps=5", "steps=6"])"),
            "p.json: parity/p: [preset] steps is set twice");
  EXPECT_EQ(error(R"({"party/p": {"summary": "s", "settings": ""}})").substr(0, 77),
            "p.json: party/p: [task] unknown task 'party'; did you mean 'parity'? Known ar");
  EXPECT_EQ(error(R"({"parity/": {"summary": "s", "settings": ""}})"),
            "p.json: parity/: [preset] a preset is called task/name");
  EXPECT_TRUE(error(R"({"parity/p": []})").starts_with("p.json: parity/p: [preset] expected an object with summary, "));
  EXPECT_EQ(error("[]"), "p.json: [json] expected an object, found an array");
  const std::string twice = error(R"({"parity/p": {"summary": "s", "settings": ""}, "parity/p": {}})");
  EXPECT_TRUE(twice.starts_with("[json] p.json: byte ") && testing::contains(twice, "'parity/p'")) << twice;
}

// The order of the file excludes cycles.
TEST(Presets, ABaseIsAnEarlierEntryOfTheSameTask) {
  const auto error = [](const std::string& first, const std::string& second) {
    const auto entry = [](const std::string& base) {
      return "{\"summary\": \"s\", \"settings\": \"\", \"base\": \"" + base + "\"}";
    };
    return error_of([&] {
      read_presets(
          formatted("{{\"base\": {{\"summary\": \"s\", \"settings\": \"\"}}, \"parity/a\": {}, \"counting/b\": {}}}",
                    entry(first), entry(second)),
          "p.json");
    });
  };
  EXPECT_EQ(error("base", "base"), "");
  EXPECT_EQ(error("bas", "base"),
            "p.json: parity/a: [preset] its base 'bas' is no entry before it in the file; did you mean 'base'?");
  EXPECT_TRUE(
      error("counting/b", "parity/a").starts_with("p.json: parity/a: [preset] its base 'counting/b' is no entry"));
  EXPECT_TRUE(error("parity/a", "base").starts_with("p.json: parity/a: [preset] its base 'parity/a' is no entry"));
  EXPECT_EQ(error("base", "parity/a"), "p.json: counting/b: [preset] its base is a preset of another task, 'parity'");
}

// A preset may not set options that the command line refuses; the messages are equal, also for encodings that the run
// does not have.
TEST(Presets, WrongOptionsAreRefusedAsOnTheCommandLine) {
  const auto applied = [](const std::string& settings) {
    return error_of([&] {
      RunConfig config = RunConfig::make("parity", "none");
      apply_preset({.task = "parity",
                    .name = "p",
                    .summary = "",
                    .source = "",
                    .note = "",
                    .settings = parse_settings("preset", settings)},
                   config);
    });
  };
  const auto set = [](const std::string& name, const std::string& value) {
    return error_of([&] { RunConfig::make("parity", "none").set(name, value); });
  };
  EXPECT_EQ(applied("steps=5 pe.cope.p-max=8"), "");
  const std::string file = "tasks/presets.json: parity/p: ";
  for (const auto& [name, value] : {std::pair{"model.widht", "64"},
                                    {"model.width", "0"},
                                    {"task.max-length", "ten"},
                                    {"optimiser.schedule", "lineal"},
                                    {"step", "5"}}) {
    EXPECT_FALSE(set(name, value).empty()) << name;
    EXPECT_EQ(applied(formatted("{}={}", name, value)), file + set(name, value));
  }
  EXPECT_TRUE(testing::contains(applied("pe.cop.p-max=8"), "did you mean 'cope'?")) << applied("pe.cop.p-max=8");
  EXPECT_TRUE(testing::contains(applied("pe.cope.pmax=8"), "did you mean 'p-max'?")) << applied("pe.cope.pmax=8");
  EXPECT_TRUE(testing::contains(applied("pe.cope.p-max=0"), "p-max must be 1 to")) << applied("pe.cope.p-max=0");
}

TEST(Presets, AreAcceptedByTheirTasks) {
  for (const PresetEntry& preset : preset_registry()) {
    SCOPED_TRACE(preset.task + " " + preset.name);
    if (find_task(preset.task).reads_files) continue;
    const auto task = task_of(preset);
    for (const Split& split : task->splits()) EXPECT_FALSE(task->example(split.name, 0).tokens.empty());
  }
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

TEST(Presets, OtherPapersSettings) {
  const auto has = [](const char* task, const std::map<std::string, std::string>& expected) {
    auto values = values_of(RunConfig::make(task, "cope", "paper"));
    for (const auto& [name, value] : expected) EXPECT_EQ(values[name], value) << task << " " << name;
  };
  has("mqar", {{"task.vocabulary", "8192"}, {"model.layers", "2"}, {"model.heads", "1"}, {"batch", "256"}});
  has("mqar-update", {{"task.filler", "random"}, {"task.updates", "4"}, {"batch", "256"}});
  has("n-back", {{"model.width", "256"}, {"model.layers", "2"}, {"model.heads", "2"}, {"task.pairs", "384"}});
  has("group-word", {{"model.width", "512"}, {"model.hidden", "2048"}, {"model.norm-place", "post"}, {"batch", "512"}});
  has("group-word", {{"optimiser.lr", "0.0001"}, {"optimiser.weight-decay", "0.01"}, {"optimiser.name", "adamw"}});
  for (const char* task : {"string-map", "addition"}) {
    has(task, {{"model.layers", "12"}, {"model.width", "768"}, {"optimiser.warmup", "2400"}, {"steps", "40000"}});
  }
  for (const char* task : {"parity", "even-pairs", "cycle-navigation", "modular-arithmetic", "missing-duplicate"}) {
    has(task, {{"model.layers", "5"}, {"model.heads", "8"}, {"optimiser.name", "adam"}, {"optimiser.clip", "1"}});
    EXPECT_GT(task_of(find_preset(task, "paper"))->split("ood-far").count, 0) << task;
  }
}

// The run accepts every name and value; options of encodings reach the chosen encoding.
TEST(Presets, AreAcceptedByTheRun) {
  for (const PresetEntry& preset : preset_registry()) {
    SCOPED_TRACE(preset.task + " " + preset.name);
    EXPECT_FALSE(preset.summary.empty());
    for (const char* encoding : {"none", "cope", "relative", "cope+relative"}) {
      EXPECT_NO_THROW(RunConfig::make(preset.task, encoding, preset.name).validate()) << encoding;
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

TEST(Presets, LengthsAndCountsAreThePublishedOnes) {
  const auto paper = task_of(find_preset("flip-flop", "paper"));
  EXPECT_EQ(paper->max_length(), 512);
  EXPECT_EQ(paper->split("ood-sparse").count, 100'000);
  EXPECT_EQ(paper->split("ood-dense").count, 3000);
  const auto quick = task_of(find_preset("flip-flop", "quick"));
  EXPECT_EQ(quick->max_length(), 128);
  for (const char* split : {"in-distribution", "ood-sparse", "ood-dense"}) {
    EXPECT_EQ(quick->split(split).count, 5000) << split;
  }
  EXPECT_EQ(task_of(find_preset("selective-copy", "paper"))->max_length(), 1024);
  const auto copy = task_of(find_preset("selective-copy", "quick"));
  EXPECT_EQ(copy->split("train").length, 48);
  EXPECT_EQ(copy->split("ood-dense").length, 40);
  EXPECT_EQ(copy->split("ood-sparse").length, 64);
  EXPECT_EQ(task_of(find_preset("counting", "paper"))->max_length(), 511);
  EXPECT_EQ(task_of(find_preset("counting", "paper"))->split("train").count, 10'000);
  EXPECT_EQ(task_of(find_preset("counting", "quick"))->max_length(), 63);
}

TEST(Presets, CountingPaperIsAHundredEpochs) {
  const auto settings = settings_of("counting", "paper");
  const int batch = std::stoi(settings.at("batch"));
  const auto programs = static_cast<int>(task_of(find_preset("counting", "paper"))->split("train").count);
  const int steps_an_epoch = (programs + batch - 1) / batch;
  EXPECT_EQ(std::stoi(settings.at("steps")), 100 * steps_an_epoch);
}

TEST(Presets, CountingQuickSeesNoProgramTwice) {
  const auto settings = settings_of("counting", "quick");
  const int seen = std::stoi(settings.at("steps")) * std::stoi(settings.at("batch"));
  EXPECT_EQ(std::stoi(settings.at("task.train-count")), seen);
}

TEST(Presets, UnknownOnesAreRefused) {
  EXPECT_EQ(error_of([] { find_preset("flip-flop", "fast"); }),
            "[preset] the task 'flip-flop' has no preset 'fast'; it has demo, paper, quick");
  EXPECT_EQ(error_of([] { find_preset("shakespeare", "quick"); }),
            "[preset] the task 'shakespeare' has no presets, asked for 'quick', which would be an entry "
            "'shakespeare/quick' in tasks/presets.json");
}

}  // namespace preset_test
}  // namespace tally

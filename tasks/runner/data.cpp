// tally data: sequences of a task, one a line as text or JSON, or their tokens as .npy.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "core/io/atomic_file.hpp"
#include "core/io/json.hpp"
#include "core/io/npy.hpp"
#include "tasks/batch.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/config_options.hpp"
#include "tasks/statistics.hpp"

namespace tally {
namespace {

struct DataSettings {
  std::string task, preset, split = "train", out;
  std::int64_t count = 10, start = 0;
};

template <class T>
JsonValue json_array(const std::vector<T>& values) {
  JsonValue array = JsonValue::array();
  for (const T value : values) array.push(JsonValue(static_cast<std::int64_t>(value)));
  return array;
}

std::string json_line(const Task& task, const Example& example, std::int64_t index) {
  return write_json(JsonValue::object({{"index", index},
                                       {"text", task.text(example)},
                                       {"tokens", json_array(example.tokens)},
                                       {"targets", json_array(example.targets)},
                                       {"loss_mask", json_array(example.loss_mask)},
                                       {"score_mask", json_array(example.score_mask)}}));
}

void write_tokens(const DataSettings& settings, const Task& task) {
  std::vector<Example> examples = examples_of(task, settings.split, settings.start, settings.start + settings.count);
  for (std::size_t n = 1; n < examples.size(); ++n) {
    check(examples[n].tokens.size() == examples[0].tokens.size(), "data", "sequence ", settings.start, " has ",
          examples[0].tokens.size(), " tokens, sequence ", settings.start + static_cast<std::int64_t>(n), " has ",
          examples[n].tokens.size(), ": .npy needs equal lengths, .jsonl does not");
  }
  write_npy(settings.out, collate(examples).tokens);
}

int run_data(const DataSettings& settings, const RunConfig& config, const CommonOptions& common) {
  const std::unique_ptr<Task> task = as_usage([&] { return config.make_task(); });
  as_usage([&] { return task->split(settings.split).count; });
  if (settings.out.ends_with(".npy")) {
    write_tokens(settings, *task);
  } else {
    const bool as_json = settings.out.empty() ? common.json : settings.out.ends_with(".jsonl");
    std::string lines;
    for (std::int64_t index = settings.start; index < settings.start + settings.count; ++index) {
      const Example example = task->example(settings.split, index);
      const std::string line = as_json ? json_line(*task, example, index) : task->text(example);
      if (settings.out.empty()) {
        std::cout << line << "\n";
      } else {
        lines += line + "\n";
      }
    }
    if (settings.out.empty()) return exit_code::done;
    write_file_atomically(settings.out, lines);
  }
  if (common.json) {
    std::cout << write_json(JsonValue::object({{"out", settings.out},
                                               {"task", config.task->name},
                                               {"split", settings.split},
                                               {"start", settings.start},
                                               {"sequences", settings.count}}))
              << "\n";
  } else if (!common.quiet) {
    std::cout << concat(settings.out, ": ", with_commas(settings.count), " sequences of ", config.task->name, ", ",
                        settings.split, "\n");
  }
  return exit_code::done;
}

}  // namespace

std::function<int()> declare_data(CLI::App& app, CommonOptions& common, const std::vector<std::string>& arguments) {
  auto settings = std::make_shared<DataSettings>();
  app.add_option("--task", settings->task, "the task ('tally list tasks')")->required()->group("What");
  app.add_option("--preset", settings->preset, "the task's settings ('tally list presets')")->group("What");
  app.add_option("--split", settings->split, "train, in-distribution, ...")->capture_default_str()->group("What");
  app.add_option("--count", settings->count, "sequences")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group("What");
  app.add_option("--start", settings->start, "number of the first one")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group("What");
  app.add_option("--out", settings->out, "file to write: .npy tokens i32 [sequences, tokens], .jsonl, else text lines")
      ->group("What");
  auto config = std::make_shared<RunConfig>(as_usage([&] {
    const std::string task = look_ahead(arguments, "--task");
    return RunConfig::make(task.empty() ? "flip-flop" : task, "none",
                           task.empty() ? "" : look_ahead(arguments, "--preset"));
  }));
  const auto options = ConfigOptions::declare_for(app, *config, [](std::string_view name) {
    return name.starts_with("task.") || name == "seed" || name == "data-seed";
  });
  return [settings, options, config, &common] {
    options->apply(*config);
    return run_data(*settings, *config, common);
  };
}

}  // namespace tally

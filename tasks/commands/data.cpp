// tally data: sequences of a task, one a line as text or JSON, or their tokens as .npy.
#include <algorithm>
#include <iostream>
#include <memory>

#include "core/io/atomic_file.hpp"
#include "core/io/npy.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/command_line/signals.hpp"
#include "tasks/runs/preset.hpp"

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

// False when `stop` came first; nothing is left of the file then.
bool write_tokens(const DataSettings& settings, const Task& task, const std::atomic<bool>& stop) {
  const std::int64_t count = settings.count;
  const auto length = static_cast<std::int64_t>(task.example(settings.split, settings.start).tokens.size());
  MemoryEstimate estimate;
  estimate.data = static_cast<double>(size_of(DType::i32)) * static_cast<double>(count) * static_cast<double>(length);
  check_fits(estimate, "write fewer sequences, or .jsonl, which is written line by line");
  const Tensor tokens = Tensor::empty({count, length}, DType::i32);
  auto row = tokens.span<std::int32_t>().begin();
  for (std::int64_t n = 0; n < count; ++n) {
    if (stop) return false;
    const Example example = task.example(settings.split, settings.start + n);
    check(static_cast<std::int64_t>(example.tokens.size()) == length, "data",
          "sequence {} has {} tokens, sequence {} has {}: .npy needs equal lengths, .jsonl does not", settings.start,
          length, settings.start + n, example.tokens.size());
    row = std::copy(example.tokens.begin(), example.tokens.end(), row);
  }
  write_npy(settings.out, tokens);
  return true;
}

// Calls use(line) with the line of each sequence, its end included, until that returns false.
template <class F>
void make_lines(const DataSettings& settings, const Task& task, bool as_json, F&& use) {
  for (std::int64_t index = settings.start; index < settings.start + settings.count; ++index) {
    const Example example = task.example(settings.split, index);
    if (!use((as_json ? json_line(task, example, index) : task.text(example)) + "\n")) return;
  }
}

bool write_lines(const DataSettings& settings, const Task& task, bool as_json, const std::atomic<bool>& stop) {
  constexpr std::size_t chunk_bytes = 1 << 16;
  AtomicFile file(settings.out);
  std::string chunk;
  make_lines(settings, task, as_json, [&](const std::string& line) {
    chunk += line;
    if (chunk.size() >= chunk_bytes) {
      file.write(chunk);
      chunk.clear();
    }
    return !stop;
  });
  if (stop) return false;
  file.write(chunk);
  file.finish();
  return true;
}

Result run_data(const DataSettings& settings, const RunConfig& config, bool json) {
  const std::unique_ptr<Task> task = as_usage([&] {
    std::unique_ptr<Task> made = config.make_task();
    made->split_holding(settings.split, settings.start, settings.count);
    return made;
  });
  if (settings.out.empty()) {
    make_lines(settings, *task, json, [](const std::string& line) { return static_cast<bool>(std::cout << line); });
    return {};
  }
  const std::string ending = known_ending(settings.out, {".npy", ".jsonl", ".txt", ""});
  const std::atomic<bool>& stop = watch_signals();  // so that no part of a file stays
  check_output(settings.out);
  const bool written =
      ending == ".npy" ? write_tokens(settings, *task, stop) : write_lines(settings, *task, ending == ".jsonl", stop);
  if (!written) return {signal_exit_code()};
  return {.value = JsonValue::object({{"out", settings.out},
                                      {"task", config.task->name},
                                      {"split", settings.split},
                                      {"start", settings.start},
                                      {"sequences", settings.count}}),
          .notice = true};
}

}  // namespace

std::function<Result()> declare_data(CommandLine& line) {
  const auto settings = std::make_shared<DataSettings>();
  const std::string task = line.look_ahead("--task");
  line.json_help = "print one JSON object a line, for each sequence; with --out one at the end";
  line.add("--task", &settings->task, "the task ('tally list tasks')", {.required = true});
  line.add("--preset", &settings->preset, formatted("the task's settings: {}", preset_names(task)));
  line.add("--split", &settings->split, "train, in-distribution, ...");
  line.add("--count", &settings->count, "sequences", {.least = 1, .most = endless_count});
  line.add("--start", &settings->start, "number of the first one", {.least = 0, .most = endless_count - 1});
  line.add("--out", &settings->out,
           "file to write: .npy tokens i32 [sequences, tokens], .jsonl, or .txt for lines of text");
  const auto config = std::make_shared<RunConfig>(as_usage([&] {
    return task.empty() ? RunConfig::make("flip-flop", "none")
                        : RunConfig::make(task, "none", line.look_ahead("--preset"));
  }));
  const auto options = ConfigOptions::declare_for(line, *config, [](std::string_view name) {
    return name.starts_with("task.") || name == "seed" || name == "data-seed";
  });
  return [settings, options, config, &common = line.common] {
    options->apply(*config);
    return run_data(*settings, *config, common.json);
  };
}

}  // namespace tally

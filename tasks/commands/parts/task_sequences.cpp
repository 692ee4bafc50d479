#include "tasks/commands/parts/task_sequences.hpp"

#include <algorithm>
#include <iostream>
#include <memory>

#include "core/io/atomic_file.hpp"
#include "core/io/npy.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/command_line/output_file.hpp"
#include "tasks/command_line/signals.hpp"
#include "tasks/runs/preset.hpp"

namespace tally {
namespace {

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
bool write_tokens(const TaskSequences& settings, const Task& task, const std::atomic<bool>& stop) {
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
    check(static_cast<std::int64_t>(example.tokens.size()) == length, "describe",
          "sequence {} has {} tokens, sequence {} has {}: .npy needs equal lengths, .jsonl does not", settings.start,
          length, settings.start + n, example.tokens.size());
    row = std::copy(example.tokens.begin(), example.tokens.end(), row);
  }
  write_npy(settings.out, tokens);
  return true;
}

// Calls use(line) with the line of each sequence, its end included, until that returns false.
template <class F>
void make_lines(const TaskSequences& settings, const Task& task, bool as_json, F&& use) {
  for (std::int64_t index = settings.start; index < settings.start + settings.count; ++index) {
    const Example example = task.example(settings.split, index);
    if (!use((as_json ? json_line(task, example, index) : task.text(example)) + "\n")) return;
  }
}

bool write_lines(const TaskSequences& settings, const Task& task, bool as_json, const std::atomic<bool>& stop) {
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

}  // namespace

std::shared_ptr<TaskSequences> TaskSequences::declare(CommandLine& line) {
  const auto settings = std::make_shared<TaskSequences>();
  line.add("--sequences", &settings->count, "of a task: print this many of its sequences, one a line",
           {.group = "Sequences", .least = 1, .most = endless_count});
  const Rules rules{.group = "Sequences", .needs = {"--sequences"}};
  const auto is_task = [](const std::string& word) {
    return std::ranges::any_of(task_registry(), [&](const TaskEntry* entry) { return entry->name == word; });
  };
  const auto task = std::ranges::find_if(line.words(), is_task);
  const bool is_known = task != line.words().end();
  line.add("--preset", &settings->preset,
           formatted("settings of the task: {}", preset_names(is_known ? *task : std::string())), rules);
  line.add("--split", &settings->split, "train, in-distribution, ...", rules);
  line.add("--start", &settings->start, "number of the first sequence",
           {.group = rules.group, .least = 0, .most = endless_count - 1, .needs = rules.needs});
  line.add("--out", &settings->out,
           "file to write: .npy tokens i32 [sequences, tokens], .jsonl, or .txt for lines of text", rules);
  if (!is_known) return settings;
  settings->config = std::make_shared<RunConfig>(
      as_usage([&] { return RunConfig::make(*task, "none", line.look_ahead("--preset")); }));
  settings->options = ConfigOptions::declare_for(
      line, *settings->config,
      [](std::string_view name) { return name.starts_with("task.") || name == "seed" || name == "data-seed"; },
      rules.needs);
  return settings;
}

Result TaskSequences::print(const std::string& name, bool as_json) const {
  as_usage([&] { find_task(name); });
  const std::unique_ptr<Task> task = as_usage([&] {
    options->apply(*config);
    std::unique_ptr<Task> made = config->make_task();
    made->split_holding(split, start, count);
    return made;
  });
  if (out.empty()) {
    make_lines(*this, *task, as_json, [](const std::string& text) { return static_cast<bool>(std::cout << text); });
    return {};
  }
  const std::string ending = known_ending(out, {".npy", ".jsonl", ".txt", ""});
  const std::atomic<bool>& stop = watch_signals();  // so that no part of a file stays
  check_output(out);
  const bool written =
      ending == ".npy" ? write_tokens(*this, *task, stop) : write_lines(*this, *task, ending == ".jsonl", stop);
  if (!written) return {signal_exit_code()};
  return {.value = JsonValue::object(
              {{"out", out}, {"task", name}, {"split", split}, {"start", start}, {"sequences", count}}),
          .notice = true};
}

}  // namespace tally

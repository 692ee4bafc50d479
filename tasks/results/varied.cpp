#include "tasks/results/varied.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/file_descriptor.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/files.hpp"

namespace tally {
namespace {

const JsonLimits file_limits{.max_depth = 8, .max_values = 1'000'000};

}  // namespace

VariedKey VariedQuestion::key(std::int64_t step) const {
  return {step, option, value, split, changes_text(beside, changes)};
}

VariedFile::VariedFile(std::string folder)
    : folder_(std::move(folder)), path_(formatted("{}/{}", folder_, varied_file_name)) {
  read();
}

void VariedFile::read() {
  entries_.clear();
  if (!path_exists(path_)) return;
  const JsonValue file = read_json(path_, file_limits);
  in_file(path_, [&] {
    check(file.is_object(), "varied", "must be an object, not {}", file.kind());
    check(file.integer("format") == 1, "varied", "format {} is not one that this version reads (1)",
          file.integer("format"));
    for (const JsonValue& line : file.elements("results")) {
      const Evaluation e = evaluation_from_json(line);
      const std::string with = line.contains("with") ? line.string("with") : "";
      if (e.generated) continue;
      entries_.push_back({{line.integer("step"), line.string("option"), line.string("value"), e.split, with}, e});
    }
  });
}

const Evaluation* VariedFile::find(const VariedKey& key) const {
  const Evaluation* largest = nullptr;
  for (const auto& [own, evaluation] : entries_) {
    if (own == key && (largest == nullptr || evaluation.sequences > largest->sequences)) largest = &evaluation;
  }
  return largest;
}

void VariedFile::add(const VariedKey& key, const Evaluation& evaluation) {
  // Other processes may add entries to the file at the same time, and these are kept. The lock is on config.json, which
  // every run has, because the file itself may not exist yet. The folder's own lock is held during the whole training.
  const FileDescriptor lock = wait_for_lock(folder_ + "/config.json");
  read();
  if (find(key) != nullptr) return;
  entries_.emplace_back(key, evaluation);
  JsonValue results = JsonValue::array();
  for (const auto& [own, found] : entries_) {
    JsonValue line = evaluation_json(own.step, found);
    line.set("option", own.option).set("value", own.value);
    if (!own.with.empty()) line.set("with", own.with);
    results.push(std::move(line));
  }
  const JsonValue file = JsonValue::object({{"format", 1}, {"results", std::move(results)}});
  write_file_atomically(path_, write_json(file, 2) + "\n");
}

TaskSettings same_targets(const std::vector<std::int64_t>& lengths) {
  const auto [shortest, longest] = std::ranges::minmax(lengths);
  return {{"task.after", to_text(longest)}, {"task.stride", to_text(std::max<std::int64_t>(1, shortest / 2))}};
}

std::string changes_text(const TaskSettings& beside, const std::vector<std::string>& changes) {
  std::vector<std::string> all;
  for (const auto& [name, value] : beside) all.push_back(formatted("{}={}", name, value));
  all.insert(all.end(), changes.begin(), changes.end());
  return joined(all, " ");
}

}  // namespace tally

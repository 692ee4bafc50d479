#include "tasks/results/varied.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/file_descriptor.hpp"
#include "tasks/evaluation/error_rates.hpp"
#include "tasks/runs/config.hpp"

namespace tally {
namespace {

const JsonLimits file_limits{.max_depth = 8, .max_values = 1'000'000};

}  // namespace

VariedFile::VariedFile(std::string folder)
    : folder_(std::move(folder)), path_(formatted("{}/{}", folder_, varied_file_name)) {
  read();
}

void VariedFile::read() {
  entries_.clear();
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) return;
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

std::vector<std::pair<std::string, std::string>> same_targets(const std::vector<std::int64_t>& lengths) {
  const auto [shortest, longest] = std::ranges::minmax(lengths);
  return {{"task.after", to_text(longest)}, {"task.stride", to_text(std::max<std::int64_t>(1, shortest / 2))}};
}

std::string changes_text(const std::vector<std::pair<std::string, std::string>>& beside,
                         const std::vector<std::string>& changes) {
  std::vector<std::string> all;
  for (const auto& [name, value] : beside) all.push_back(formatted("{}={}", name, value));
  all.insert(all.end(), changes.begin(), changes.end());
  return joined(all, " ");
}

ResultTable varied_table(const VariedSetting& setting, const std::vector<VariedLine>& lines) {
  ResultTable table{"", {{"encoding"}}};
  for (const std::string& value : setting.values) table.columns.push_back({value});
  table.columns.push_back({"runs"});
  bool of_text = false;
  std::set<std::string> counts;
  std::vector<std::string> refusals;
  for (const VariedLine& line : lines) {
    std::vector<ResultCell>& row = table.rows.emplace_back(1, line.label);
    for (std::size_t n = 0; n < line.cells.size(); ++n) {
      const VariedCell& cell = line.cells[n];
      row.push_back(result_cell(cell.results, setting.sequences));
      if (!cell.results.empty() && cell.results.front().text) {
        of_text = true;
        counts.insert(formatted("- at {}: {}", setting.values[n], text_counts_text(*cell.results.front().text)));
      }
      if (cell.refusal.empty()) continue;
      row.back().json.set("refused", cell.refusal);
      refusals.push_back(formatted("{} at {}: {}", line.label, setting.values[n], cell.refusal));
    }
    row.push_back(line.finished == line.runs ? formatted("{}", line.runs)
                                             : formatted("{} of {} finished", line.finished, line.runs));
  }
  const std::string wrong = formatted("wrong {}{}", setting.sequences ? "sequences" : "tokens",
                                      setting.generated ? " of generated answers" : "");
  table.title =
      formatted("{}, {}, {} against {}{}: mean over seeds (standard deviation)", setting.task, setting.split,
                of_text ? "perplexity" : wrong, setting.option, setting.with.empty() ? "" : " with " + setting.with);
  for (const auto& notes : {std::vector<std::string>(counts.begin(), counts.end()), refusals}) {
    if (!notes.empty()) table.notes.push_back(joined(notes, "\n"));
  }
  return table;
}

}  // namespace tally

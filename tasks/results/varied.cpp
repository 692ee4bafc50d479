#include "tasks/results/varied.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/file_descriptor.hpp"
#include "tasks/evaluation/error_rates.hpp"
#include "tasks/evaluation/text_counts.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/print/table.hpp"

namespace tally {
namespace {

const JsonLimits file_limits{.max_depth = 8, .max_values = 1'000'000};

std::vector<double> losses(const VariedCell& cell) {
  std::vector<double> values;
  for (const Evaluation& e : cell.results) values.push_back(e.loss);
  return values;
}

// "4.9% (4.4, n 3)"; of a text "24.9 (0.2, n 3)".
std::string cell_text(const VariedTable& table, const VariedCell& cell) {
  const auto text_of = [](const std::string& mean, const std::string& deviation, std::int64_t n) {
    return n == 0 ? "-" : formatted("{} ({}n {})", mean, n > 1 ? deviation + ", " : "", n);
  };
  if (table.of_text()) {
    const ExponentialMean mean = mean_of_exponentials(losses(cell));
    return text_of(mean.mean_text(), mean.deviation_text(2), mean.value.n);
  }
  const MeanDeviation mean = mean_deviation(error_rates(cell.results, table.sequences).rates);
  return text_of(percent_text(mean.mean), percent_number(mean.deviation), mean.n);
}

double bits_per_byte(const VariedCell& cell) {
  double sum = 0;
  for (const Evaluation& e : cell.results) sum += e.bits_per_byte();
  return sum / static_cast<double>(cell.results.size());
}

// The token counts of the perplexities at each value.
std::string text_counts_of(const VariedTable& table) {
  std::string text;
  for (std::size_t n = 0; n < table.values.size(); ++n) {
    std::set<std::string> told;
    for (const VariedLine& line : table.lines) {
      for (const Evaluation& e : line.cells[n].results) {
        if (e.text && told.insert(text_counts_text(*e.text)).second) {
          text += formatted("- at {}: {}\n", table.values[n], text_counts_text(*e.text));
        }
      }
    }
  }
  return text.empty() ? "" : text + "\n";
}

std::string what_is_shown(const VariedTable& table) {
  if (table.of_text()) return "perplexity";
  return formatted("wrong {}{}", table.sequences ? "sequences" : "tokens",
                   table.generated ? " of generated answers" : "");
}

}  // namespace

bool VariedTable::of_text() const {
  return std::ranges::any_of(lines, [](const VariedLine& line) {
    return std::ranges::any_of(line.cells, [](const VariedCell& cell) {
      return !cell.results.empty() && cell.results.front().text.has_value();
    });
  });
}

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
      entries_.push_back({{line.integer("step"), line.string("option"), line.string("value"), e.split,
                           line.integer("count"), e.generated, line.contains("with") ? line.string("with") : ""},
                          e});
    }
  });
}

const Evaluation* VariedFile::find(const VariedKey& key) const {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  return found == entries_.end() ? nullptr : &found->evaluation;
}

const Evaluation* VariedFile::find_largest(VariedKey key) const {
  const Entry* largest = nullptr;
  for (const Entry& entry : entries_) {
    key.count = entry.key.count;
    if (entry.key == key && (largest == nullptr || entry.key.count > largest->key.count)) largest = &entry;
  }
  return largest == nullptr ? nullptr : &largest->evaluation;
}

void VariedFile::add(const VariedKey& key, const Evaluation& evaluation) {
  // Other processes may add entries to the file at the same time, and these are kept. The lock is on config.json, which
  // every run has, because the file itself may not exist yet. The folder's own lock is held during the whole training.
  const FileDescriptor lock = wait_for_lock(folder_ + "/config.json");
  read();
  if (find(key) != nullptr) return;
  entries_.push_back({key, evaluation});
  JsonValue results = JsonValue::array();
  for (const Entry& entry : entries_) {
    JsonValue line = evaluation_json(entry.key.step, entry.evaluation);
    line.set("option", entry.key.option).set("value", entry.key.value).set("count", entry.key.count);
    if (!entry.key.with.empty()) line.set("with", entry.key.with);
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

std::string varied_text(const std::vector<VariedTable>& tables) {
  std::string text;
  for (const VariedTable& table : tables) {
    TableRows rows{{"encoding"}};
    for (const std::string& value : table.values) rows.front().push_back(value);
    std::string refusals;
    for (const VariedLine& line : table.lines) {
      rows.push_back({line.label});
      for (std::size_t n = 0; n < line.cells.size(); ++n) {
        const VariedCell& cell = line.cells[n];
        rows.back().push_back(cell_text(table, cell));
        if (!cell.refusal.empty()) refusals += formatted("{} at {}: {}\n", line.label, table.values[n], cell.refusal);
      }
      if (line.unfinished > 0) refusals += formatted("{}: {} runs are not finished\n", line.label, line.unfinished);
    }
    text += formatted("{}, {}, {} against {}{}: mean over seeds (standard deviation, number of runs)\n\n{}\n{}{}{}",
                      table.task, table.split, what_is_shown(table), table.option,
                      table.with.empty() ? "" : " with " + table.with, markdown_table(rows), text_counts_of(table),
                      refusals, refusals.empty() ? "" : "\n");
  }
  return text;
}

JsonValue varied_json(const std::vector<VariedTable>& tables) {
  JsonValue all = JsonValue::array();
  for (const VariedTable& table : tables) {
    JsonValue groups = JsonValue::array();
    for (const VariedLine& line : table.lines) {
      JsonValue cells = JsonValue::array(), runs = JsonValue::array();
      for (std::size_t n = 0; n < line.cells.size(); ++n) {
        JsonValue cell = JsonValue::object({{"value", table.values[n]}});
        if (!line.cells[n].results.empty()) {
          if (table.of_text()) {
            cell.set("perplexity", perplexity_json(losses(line.cells[n])));
            const TextCounts& text = *line.cells[n].results.front().text;
            if (text.bytes > 0) cell.set("bits_per_byte", bits_per_byte(line.cells[n]));
            cell.set("text", text_counts_json(text).set("split", table.split));
          }
          cell.set("token_error", error_rates(line.cells[n].results, false).json());
          cell.set("sequence_error", error_rates(line.cells[n].results, true).json());
        }
        if (!line.cells[n].refusal.empty()) cell.set("refused", line.cells[n].refusal);
        cells.push(std::move(cell));
      }
      for (const std::string& run : line.runs) runs.push(run);
      groups.push(JsonValue::object({{"label", line.label},
                                     {"values", std::move(cells)},
                                     {"runs", std::move(runs)},
                                     {"unfinished", line.unfinished}}));
    }
    all.push(JsonValue::object({{"task", table.task},
                                {"option", table.option},
                                {"split", table.split},
                                {"with", table.with},
                                {"generated", table.generated},
                                {"groups", std::move(groups)}}));
  }
  return JsonValue::object({{"tables", std::move(all)}});
}

}  // namespace tally

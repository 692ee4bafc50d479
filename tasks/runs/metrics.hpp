// metrics.jsonl: what a run says of itself while it trains, one object a line. Its keys are known here alone, but for
// those of an evaluation and of a machine, which other files have too (tasks/evaluation/evaluate.hpp,
// tasks/runs/machine.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/io/file_descriptor.hpp"
#include "core/io/json.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/runs/machine.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {

// The first line: what is trained, its configuration under "config". Older files say less.
struct RunRecord {
  JsonValue json;
};

// Each start of the run, the resumed ones too: what computes from here on. Like times it is no part of what a kill and
// a resume leave as it is.
struct StartRecord {
  std::int64_t step = 0;  // the last one that was trained before
  Machine machine;
};

struct Measurement {
  std::int64_t step = 0;
  Evaluation evaluation;
};

// Why the run stopped here; goes when it is resumed.
struct DivergenceRecord {
  std::int64_t step = 0;
  std::string why;
};

// A step of training is recorded as its report, without the number of steps planned.
using MetricsRecord = std::variant<RunRecord, StartRecord, StepReport, Measurement, DivergenceRecord>;

// 0 for the description of a run.
std::int64_t step_of(const MetricsRecord& record);

// The records of one kind, in their order.
template <class Record>
std::vector<Record> all_of(const std::vector<MetricsRecord>& records) {
  std::vector<Record> found;
  for (const MetricsRecord& record : records) {
    if (const auto* one = std::get_if<Record>(&record)) found.push_back(*one);
  }
  return found;
}

// All records; a cut last line is left out, and a file that is not there has none. Throws Error naming file and line
// for what is no record.
std::vector<MetricsRecord> read_metrics(const std::string& path);

// Replaces the file, atomically.
void rewrite_metrics(const std::string& path, const std::vector<MetricsRecord>& records);

// Appends records, each with one write, so that a killed run leaves at most its last line cut.
class MetricsWriter {
 public:
  explicit MetricsWriter(const std::string& path);
  void write(const MetricsRecord& record);
  // Waits until all records are on disk.
  void sync();

 private:
  std::string path_;
  FileDescriptor file_;
};

}  // namespace tally

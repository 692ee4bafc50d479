// metrics.jsonl: the records of a run during training, one object per line. Only this file knows the keys. The
// exceptions are the keys of evaluations and machines, which other files use too (tasks/evaluation/evaluate.hpp,
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

// The first line: a description of the run, with its configuration under "config". Older files have fewer members.
struct RunRecord {
  JsonValue json;
};

// Written at each start of the run, including resumes: the machine from this step on. Like times, it may differ between
// an interrupted run and an uninterrupted one.
struct StartRecord {
  std::int64_t step = 0;  // the last step trained before
  Machine machine;
};

struct Measurement {
  std::int64_t step = 0;
  Evaluation evaluation;
};

// Why the run stopped here. Removed when the run is resumed.
struct DivergenceRecord {
  std::int64_t step = 0;
  std::string why;
};

// A training step is recorded as its report, without the planned number of steps.
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

// All records. A truncated last line is ignored, and a missing file has no records. Throws Error naming file and line
// for a line that is not a record.
std::vector<MetricsRecord> read_metrics(const std::string& path);

// Replaces the file, atomically.
void rewrite_metrics(const std::string& path, const std::vector<MetricsRecord>& records);

// Appends records, each with a single write, so that a killed run truncates at most its last line.
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

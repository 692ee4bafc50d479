// What `tally inspect` shows, as the JSON that its page reads: sequences, and for each run what the model answers, what
// every head of every layer attends to, and what its gates are on average for each symbol.
//
//   {"task", "symbols": {id: text} of those that occur, "version", "marks": [name],
//    "sequences": [{"name", "tokens": [id], "targets": [id], "scored": [0 or 1], "gate_levels": 255,
//                   "marked": [of each token the number of its mark, or -1]}],
//    "quantities": {"weights": "share", "gates": "gates", ...},            how each is packed
//    (tasks/inspect/packing.hpp) "runs": [{"name", "pe", "step", "layers", "heads", "seed", "encodings": [{"name",
//    "summary", "formula", "paper"}],
//              "counted": [id],                                            the symbols that the means are of
//              "sequences": [{"answers": [id], "sure": [p of the answer],
//                             "layers": [{"weights": [packed or null, one a head], "gates": ...}]}],
//              "means": [one a layer: {"weights": [one a head: rows], ...}],
//              "marked_means": [the same by marks: tokens without one, then each mark]}]}
// rows: one for each counted symbol of the query and one of all queries, with a mean for each counted symbol of the key
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/data/task.hpp"
#include "tasks/inspect/marks.hpp"
#include "tasks/runs/config.hpp"

namespace tally {

struct InspectedRun {
  std::string name;
  const RunConfig& config;
  SequenceModel& model;
  std::int64_t step = 0;  // of the checkpoint
};

class Inspection {
 public:
  // The runs' vocabulary must be that of the task. `tokens`: of all sequences that will be added; the symbols that
  // there are most of them are those that the means are of. `marks`: what is pointed out in them
  // (tasks/inspect/marks.hpp). References to task and runs are kept.
  Inspection(const Task& task, std::vector<InspectedRun> runs, const std::vector<std::int32_t>& tokens,
             std::vector<Mark> marks = {});
  ~Inspection();
  Inspection(const Inspection&) = delete;
  Inspection& operator=(const Inspection&) = delete;

  // Has every run read the sequence. Throws Error where one is too long for a run.
  void add(const Example& example, const std::string& name);
  // Bytes that the page takes for what was added.
  std::int64_t packed_bytes() const;
  // Of what was added. To be called once.
  JsonValue json();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tally

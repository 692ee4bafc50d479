// The JSON that the page of `tally inspect` reads. It holds sequences and, for each run, the model's answers, the
// attention of every head of every layer, and the mean gates for each symbol.
//
//   {"task", "symbols": {id: text}, "version", "marks": [name],
//    "sequences": [{"name", "tokens": [id], "targets": [id], "scored": [0 or 1], "gate_levels": 255,
//                   "marked": [the number of each token's mark, or -1]}],
//    "quantities": {"weights": "share", "gates": "gates", ...},
//    "runs": [{"name", "pe", "step", "layers", "heads", "seed",
//              "encodings": [{"name", "summary", "formula", "paper"}],
//              "counted": [id],
//              "sequences": [{"answers": [id], "sure": [p of the answer],
//                             "layers": [{"weights": [packed or null, one a head], "gates": ...}]}],
//              "means": [one a layer: {"weights": [one a head: rows], ...}],
//              "marked_means": [the same by marks: tokens without one, then each mark]}]}
//
// symbols: only if they occur. quantities: how each is packed (tasks/inspect/packing.hpp). counted: the symbols with
// means. rows: one for each counted symbol of the query and one of all queries, with a mean for each counted symbol of
// the key.
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
  // The runs' vocabulary must equal the task's. `tokens`: of all sequences that will be added; the means cover the most
  // frequent symbols. `marks`: the lines to mark (tasks/inspect/marks.hpp). Keeps references to task and runs.
  Inspection(const Task& task, std::vector<InspectedRun> runs, const std::vector<std::int32_t>& tokens,
             std::vector<Mark> marks = {});
  ~Inspection();
  Inspection(const Inspection&) = delete;
  Inspection& operator=(const Inspection&) = delete;

  // Runs every model on the sequence. Throws Error if it is too long for a run.
  void add(const Example& example, const std::string& name);
  // The size in bytes of the added sequences on the page.
  std::int64_t packed_bytes() const;
  // The JSON of all added sequences. Call it once.
  JsonValue json();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tally

// The weights of a finished run as the start of another run, usually with another encoding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/data/task.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {

class SourceWeights {
 public:
  // Throws Error unless the run is finished and its last checkpoint can be read. Nothing is written to it.
  explicit SourceWeights(const std::string& run);

  WeightsOrigin origin() const;

  // The parameters of the model of this configuration. Throws Error if it is another model, except for its encoding and
  // for norms of queries and keys, or if a parameter that both have differs in shape.
  struct Match {
    std::int64_t taken = 0;                   // parameters that get the stored values
    std::vector<std::string> fresh, dropped;  // names of parameters that only the new or only the stored model has
  };
  Match match(const RunConfig& config, const Task& task) const;
  // Writes the checkpoint of step 0 of a new run. Parameters that are not stored keep the start values of its seed.
  void write_start(const RunFolder& folder) const;

 private:
  RunFolder folder_;
  StoredCheckpoint checkpoint_;
};

// "46 parameters from runs/rope at step 500; new: position.cope.table (4 layers); dropped: none".
std::string match_text(const SourceWeights::Match& match, const WeightsOrigin& origin);

}  // namespace tally

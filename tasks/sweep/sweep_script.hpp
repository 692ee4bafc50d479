// tally sweep --print slurm: a script with which Slurm starts the workers of a sweep.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tally {

struct SweepScript {
  std::string program;             // tally, with its whole path
  std::string folder;              // of the sweep, with its whole path
  std::vector<std::string> runs;   // names of the open runs
  std::vector<std::string> words;  // common options of the workers: {"--threads=2"}
  std::int64_t jobs = 1;           // at a time: elements of the array
  std::int64_t threads = 1;        // of a worker
  std::int64_t memory_mib = 0;     // that a run needs at most
};

// The text of the script. Each run gets a worker of its own (--only), so a script that is restarted, or runs next to
// others, trains only the remaining runs.
std::string slurm_script(const SweepScript& script);

}  // namespace tally

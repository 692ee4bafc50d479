// Profile of a run: a table of times by operation, and a trace for chrome://tracing or ui.perfetto.dev.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autograd/profile.hpp"

namespace tally {

class ProfileReport {
 public:
  // Starts a profile; `path` is where write() puts the trace.
  explicit ProfileReport(std::string path);
  // Adds the events since the last call. The table counts all events. The trace ends with the step in which it exceeds
  // 100,000 events, so that viewers can open the trace of a long run.
  void collect();
  // Ends the profile and writes the trace atomically.
  void write();
  // Time, calls and bytes of each operation, one line each, sorted by falling time.
  std::string table() const;

 private:
  struct Sum {
    double microseconds = 0;
    std::int64_t calls = 0;
    std::uint64_t bytes = 0;
  };

  void take(std::vector<ProfileEvent> events);

  std::string path_;
  std::map<std::string, Sum> sums_;
  std::vector<ProfileEvent> trace_;
  double offset_us_ = 0;  // start of the current profile
};

}  // namespace tally

// Where the time of a run went: a table by operation, and a file for chrome://tracing or ui.perfetto.dev.
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
  // Takes in what happened since the last call. The table counts all of it; the trace ends with the step in which it
  // passes 100,000 events, so that a long run makes a file that can be opened.
  void collect();
  // Ends the profile and writes the trace atomically.
  void write();
  // Time, calls and bytes by operation, the most time first; one line each.
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
  double offset_us_ = 0;  // when the profile at work began
};

}  // namespace tally

#include "tasks/command_line/profile_report.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/io/atomic_file.hpp"
#include "core/io/json.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

constexpr std::size_t trace_limit = 100'000;

}  // namespace

ProfileReport::ProfileReport(std::string path) : path_(std::move(path)) { start_profile(); }

void ProfileReport::take(std::vector<ProfileEvent> events) {
  const bool traced = trace_.size() < trace_limit;
  double end = 0;
  for (ProfileEvent& event : events) {
    Sum& sum = sums_[event.name];
    sum.microseconds += event.duration_us;
    ++sum.calls;
    sum.bytes += event.bytes;
    end = std::max(end, event.start_us + event.duration_us);
    event.start_us += offset_us_;
    if (traced) trace_.push_back(std::move(event));
  }
  offset_us_ += end;
}

void ProfileReport::collect() {
  take(stop_profile());
  start_profile();
}

void ProfileReport::write() {
  take(stop_profile());
  JsonValue events = JsonValue::array();
  for (const ProfileEvent& event : trace_) {
    events.push(JsonValue::object({{"name", event.name},
                                   {"ph", "X"},  // a complete event: begin and duration
                                   {"ts", event.start_us},
                                   {"dur", event.duration_us},
                                   {"pid", 1},
                                   {"tid", 1},
                                   {"args", JsonValue::object({{"bytes", event.bytes}})}}));
  }
  write_file_atomically(path_, write_json(JsonValue::object({{"traceEvents", std::move(events)}})) + "\n");
}

std::string ProfileReport::table() const {
  std::vector<std::pair<std::string, Sum>> rows(sums_.begin(), sums_.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.microseconds > b.second.microseconds; });
  double total = 0;
  for (const auto& [name, sum] : rows) total += sum.microseconds;
  char line[160];
  std::snprintf(line, sizeof line, "%-32s %10s %7s %12s %12s\n", "operation", "seconds", "share", "calls", "bytes");
  std::string text = line;
  for (const auto& [name, sum] : rows) {
    std::snprintf(line, sizeof line, "%-32s %10.4f %6.1f%% %12s %12s\n", name.c_str(), sum.microseconds * 1e-6,
                  total > 0 ? 100 * sum.microseconds / total : 0, with_commas(sum.calls).c_str(),
                  bytes_text(static_cast<double>(sum.bytes)).c_str());
    text += line;
  }
  text.pop_back();
  return text;
}

}  // namespace tally

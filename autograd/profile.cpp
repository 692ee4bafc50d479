#include "autograd/profile.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "core/allocator.hpp"

namespace tally {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> running{false};
thread_local bool inside_event = false;

struct Profile {
  std::mutex mutex;
  Clock::time_point start;
  std::vector<ProfileEvent> events;
};

Profile& profile() {
  static Profile instance;
  return instance;
}

double microseconds_since_start() {
  return std::chrono::duration<double, std::micro>(Clock::now() - profile().start).count();
}

}  // namespace

void start_profile() {
  const std::lock_guard lock(profile().mutex);
  profile().events.clear();
  profile().start = Clock::now();
  running = true;
}

bool profiling() { return running.load(std::memory_order_relaxed); }

std::vector<ProfileEvent> stop_profile() {
  running = false;
  const std::lock_guard lock(profile().mutex);
  std::vector<ProfileEvent> events = std::exchange(profile().events, {});
  std::stable_sort(events.begin(), events.end(),
                   [](const ProfileEvent& a, const ProfileEvent& b) { return a.start_us < b.start_us; });
  return events;
}

ProfileScope::ProfileScope(std::string_view name, std::string_view suffix) : active_(profiling() && !inside_event) {
  if (!active_) [[likely]]
    return;
  inside_event = true;
  name_.append(name).append(suffix);
  start_bytes_ = memory_counters().live_bytes;
  start_us_ = microseconds_since_start();
}

ProfileScope::~ProfileScope() {
  if (!active_) [[likely]]
    return;
  inside_event = false;
  const double duration_us = microseconds_since_start() - start_us_;
  const std::uint64_t bytes = memory_counters().live_bytes;
  const std::lock_guard lock(profile().mutex);
  profile().events.push_back(
      {std::move(name_), start_us_, duration_us, bytes > start_bytes_ ? bytes - start_bytes_ : 0});
}

}  // namespace tally

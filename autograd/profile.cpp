#include "autograd/profile.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "core/device/backend.hpp"

namespace tally {
namespace {

std::atomic<bool> running{false};
thread_local bool inside_event = false;

struct MarkedEvent {
  std::string name;
  void *start, *end;
  std::uint64_t bytes;
};

struct Profile {
  std::mutex mutex;
  Device device;
  void* start = nullptr;
  std::vector<MarkedEvent> events;

  const Backend& on() const { return backend(device); }
  void clear() {
    for (const MarkedEvent& event : std::exchange(events, {})) {
      on().drop_mark(event.start);
      on().drop_mark(event.end);
    }
    if (start != nullptr) on().drop_mark(std::exchange(start, nullptr));
  }
};

Profile& profile() {
  static Profile instance;
  return instance;
}

}  // namespace

void start_profile() {
  Profile& p = profile();
  const std::lock_guard lock(p.mutex);
  p.clear();
  p.device = default_device();
  p.start = p.on().set_mark();
  running = true;
}

bool profiling() { return running.load(std::memory_order_relaxed); }

std::vector<ProfileEvent> stop_profile() {
  running = false;
  Profile& p = profile();
  const std::lock_guard lock(p.mutex);
  std::vector<ProfileEvent> events;
  for (MarkedEvent& event : p.events) {
    const double start_us = p.on().time_between(p.start, event.start);
    events.push_back({std::move(event.name), start_us, p.on().time_between(event.start, event.end), event.bytes});
  }
  p.clear();
  std::stable_sort(events.begin(), events.end(),
                   [](const ProfileEvent& a, const ProfileEvent& b) { return a.start_us < b.start_us; });
  return events;
}

ProfileScope::ProfileScope(std::string_view name, std::string_view suffix) : active_(profiling() && !inside_event) {
  if (!active_) [[likely]]
    return;
  inside_event = true;
  name_.append(name).append(suffix);
  const Backend& on = profile().on();
  start_bytes_ = on.counters().live_bytes;
  start_ = on.set_mark();
}

ProfileScope::~ProfileScope() {
  if (!active_) [[likely]]
    return;
  inside_event = false;
  Profile& p = profile();
  void* const end = p.on().set_mark();
  const std::uint64_t bytes = p.on().counters().live_bytes;
  const std::lock_guard lock(p.mutex);
  p.events.push_back({std::move(name_), start_, end, bytes > start_bytes_ ? bytes - start_bytes_ : 0});
}

}  // namespace tally

// Timing: while a profile is recorded, the forward and the backward of every operation are timed by name, by the clock
// of the default device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

struct ProfileEvent {
  std::string name;  // "softmax", "softmax backward"
  double start_us;   // since start_profile
  double duration_us;
  std::uint64_t bytes;  // growth of the device's memory in use: results and saved activations
};

// Starts a profile, dropping the events of an earlier one.
void start_profile();
bool profiling();
// Ends it, waits for the device and returns its events in order of their start.
std::vector<ProfileEvent> stop_profile();

// A scope that becomes one event while a profile is recorded, and costs one branch otherwise. Only the outermost of
// nested scopes on a thread counts: a composed operation appears once, by the name its caller knows.
class ProfileScope {
 public:
  explicit ProfileScope(std::string_view name, std::string_view suffix = {});
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  bool active_;  // whether this scope is an event
  std::string name_;
  void* start_ = nullptr;
  std::uint64_t start_bytes_ = 0;
};

}  // namespace tally

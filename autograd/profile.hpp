// Where the time goes: while a Profile is active every operation's forward and backward is timed by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

struct ProfileEvent {
  std::string name;           // "softmax", "softmax backward"
  double start_us, duration_us;
  std::uint64_t bytes;        // of the outputs it allocated
};

// Starts collecting (clears what was there); stop returns the events in order of their start.
void start_profile();
std::vector<ProfileEvent> stop_profile();

// A scope that is one event while a profile is taken and costs one branch otherwise. Nested scopes: only the outermost
// counts, so that composed operations appear once... by the operation that a reader called.
class ProfileScope {
 public:
  explicit ProfileScope(std::string_view name, std::string_view suffix = {});
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  std::string name_;
  double start_ = -1;
  std::uint64_t bytes_ = 0;
};

}  // namespace tally

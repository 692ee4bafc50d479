// The runs of a plan that this process has claimed (core/io/lease.hpp). Every plan claims a run before it trains it, so
// plans and workers on any number of machines can share a folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/io/lease.hpp"
#include "tasks/results/report.hpp"

namespace tally {

inline constexpr std::int64_t lease_seconds = 120;  // longer than NFS keeps names

class RunClaims {
 public:
  explicit RunClaims(double seconds) : seconds_(seconds) {}

  // Treats claims that have ended so far as past: their runs may be tried once more, however they ended.
  void take_stock(const std::string& path);

  enum class Answer { ours, in_use, ended };
  // Tries to claim the run; makes its folder's parent. Returns `ended` if another process ended it after take_stock(),
  // with the state found_state().
  Answer take(const std::string& path);
  // The newest claim that take() saw.
  const Claim& found() const { return found_; }
  RunState found_state() const;
  std::int64_t number_of(const std::string& path) const { return held_.at(path).number(); }

  // Records how work on a run ended. An unfinished run is only released.
  void end(const std::string& path, RunState state);
  // Renews all held claims, as often as needed. Returns the lost ones, which others may be training by now.
  std::vector<std::string> renew();
  // Forgets a claim that was lost.
  void forget(const std::string& path) { held_.erase(path); }

 private:
  double seconds_;
  std::map<std::string, std::int64_t> past_;
  std::map<std::string, LeaseWatch> watched_;
  std::map<std::string, Lease> held_;
  Claim found_;
};

// "worker-3 (process 81)".
std::string holder_text(const Claim& claim);

}  // namespace tally

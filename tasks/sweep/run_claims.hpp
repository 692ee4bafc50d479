// Which of a plan's runs this process has claimed for itself (core/io/lease.hpp): every plan claims what it trains, so
// that plans and workers on any number of machines share the runs of a folder.
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

  // Takes the claims that have ended so far for past: however they did, the run may be tried once more.
  void take_stock(const std::string& path);

  enum class Answer { ours, in_use, ended };
  // Tries to claim the run; makes its folder's parent. Ended: by another process since stock was taken, with the state
  // of found().
  Answer take(const std::string& path);
  // The newest claim that take() saw.
  const Claim& found() const { return found_; }
  RunState found_state() const;
  std::int64_t number_of(const std::string& path) const { return held_.at(path).number(); }

  // Says how work on a run ended; on one that is not finished, nothing more.
  void end(const std::string& path, RunState state);
  // Renews all that are held, as often as is needed. Those that were lost, which others may train by now.
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

#include "tasks/sweep/run_claims.hpp"
#include "tasks/runs/files.hpp"

#include <filesystem>

#include "core/error.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

// The end of a claim whose run is neither finished nor given up: another process may resume it.
constexpr const char* released = "released";

}  // namespace

void RunClaims::take_stock(const std::string& path) {
  const Claim newest = newest_claim(path);
  past_[path] = newest.open() ? newest.number - 1 : newest.number;
}

RunClaims::Answer RunClaims::take(const std::string& path) {
  make_folder("sweep", fs::path(path).parent_path());
  found_ = newest_claim(path);
  const bool past = found_.number <= past_[path] || found_.state == released;
  if (found_.open() ? !watched_[path].stale(found_) : !past) return found_.open() ? Answer::in_use : Answer::ended;
  std::optional<Lease> lease = Lease::take(path, found_, seconds_);
  if (!lease) {
    found_ = newest_claim(path);
    return Answer::in_use;
  }
  held_.emplace(path, std::move(*lease));
  return Answer::ours;
}

RunState RunClaims::found_state() const { return run_state_from_text(found_.state); }

void RunClaims::end(const std::string& path, RunState state) {
  const auto lease = held_.find(path);
  if (lease == held_.end()) return;
  const bool given_up = state != RunState::unfinished && state != RunState::waiting;
  lease->second.end(given_up ? std::string(name_of(state)) : released);
  held_.erase(lease);
}

std::vector<std::string> RunClaims::renew() {
  std::vector<std::string> lost;
  for (auto& [path, lease] : held_) {
    if (!lease.renew()) lost.push_back(path);
  }
  return lost;
}

std::string holder_text(const Claim& claim) {
  return claim.holder.host.empty() ? "another process"
                                   : formatted("{} (process {})", claim.holder.host, claim.holder.process);
}

}  // namespace tally

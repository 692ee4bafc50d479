#include "tasks/sweep/sweep_status.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "core/io/lease.hpp"
#include "tasks/command_line/progress.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {
namespace {

constexpr const char* at_work = "at work";

bool ended_badly(const Claim& claim) {
  return claim.state == name_of(RunState::failed) || claim.state == name_of(RunState::diverged);
}

struct RunStatus {
  std::string state;
  std::int64_t saved = 0;  // the step of its newest checkpoint
  Claim claim;
};

RunStatus status_of(const RunPlan& plan, const PlannedRun& run) {
  const std::string path = plan.path_of(run);
  RunStatus status{std::string(name_of(run.state)), 0, newest_claim(path)};
  if (run.state == RunState::finished) return status;
  if (run.state == RunState::unfinished) {
    const std::vector<std::int64_t> steps = RunFolder::open(path).checkpoint_steps();
    if (!steps.empty()) status.saved = steps.back();
  }
  const Claim& claim = status.claim;
  if (claim.open() && !claim.holder.gone()) status.state = at_work;
  if (ended_badly(claim)) status.state = claim.state;
  return status;
}

}  // namespace

Result sweep_status(RunPlan& plan) {
  std::map<std::string, std::int64_t> counts;
  Result result;
  JsonValue runs = JsonValue::array();
  std::string lines;
  for (const PlannedRun& run : plan.runs()) {
    const RunStatus status = status_of(plan, run);
    ++counts[status.state];
    JsonValue entry = JsonValue::object({{"run", run.name}, {"state", status.state}});
    entry.set("saved_step", status.saved).set("steps", run.config.run.steps).set("claims", status.claim.number);
    if (!status.claim.holder.host.empty()) {
      entry.set("host", status.claim.holder.host).set("process", status.claim.holder.process);
      entry.set("renewed", status.claim.time).set("lease_seconds", status.claim.seconds);
    }
    runs.push(std::move(entry));
    if (status.state != at_work && !ended_badly(status.claim)) continue;
    lines += formatted("  {}: {}, step {} of {} saved; {}, {}{} by its clock, claim {}\n", printable(run.name),
                       status.state, status.saved, run.config.run.steps, printable(holder_text(status.claim)),
                       status.state == at_work ? "renewed " : "", status.claim.time, status.claim.number);
  }
  const std::int64_t busy = std::max<std::int64_t>(1, counts[at_work]);
  const std::optional<double> left = plan.seconds_left(busy);
  JsonValue states = JsonValue::object();
  std::string text = formatted("{}: {} of {} runs finished", plan.folder(), counts["finished"], plan.runs().size());
  for (const auto& [state, count] : counts) {
    if (count == 0) continue;
    states.set(state, count);
    if (state != "finished") text += formatted(", {} {}", count, state);
  }
  if (left && *left > 0) text += formatted("; about {} left, {} at a time", duration_text(*left), busy);
  result.text = formatted("{}\n{}", printable(text), lines);
  result.value = JsonValue::object({{"folder", plan.folder()}, {"states", states}, {"runs", std::move(runs)}});
  if (left) result.value.set("seconds_left", *left);
  return result;
}

}  // namespace tally

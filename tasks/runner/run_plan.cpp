#include "tasks/runner/run_plan.hpp"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

#include "core/backend.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/reader.hpp"
#include "tasks/estimate.hpp"
#include "tasks/printable.hpp"
#include "tasks/run_folder.hpp"
#include "tasks/runner/grid.hpp"
#include "tasks/runner/progress.hpp"
#include "tasks/runner/signals.hpp"
#include "tasks/runner/training.hpp"
#include "tasks/statistics.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

std::int64_t parse_seed(const std::string& text) {
  const std::optional<std::int64_t> seed = whole_number(text);
  if (!seed || *seed < 0) throw UsageError(concat("[seeds] '", text, "' is not a seed; --seeds takes 1..3 or 1,2,5"));
  return *seed;
}

bool is_open(const PlannedRun& run) { return run.state != RunState::finished; }

// The run once nobody trains it: where a plan was killed, its runs may be saving their last step for a moment longer.
RunFolder open_when_free(const std::string& path) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (true) {
    try {
      return RunFolder::open_to_train(path);
    } catch (const RunInUse&) {
      if (std::chrono::steady_clock::now() > end) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

// "in-distribution 0.1%, ood-sparse 1.8%"
std::string results_text(const RunFolder& folder) {
  std::string text;
  const JsonValue results = folder.read_results();
  for (const JsonValue& e : results.elements("evaluations")) {
    text +=
        concat(text.empty() ? "" : ", ", e.string("split"), " ", percent_text(evaluation_from_json(e).token_error()));
  }
  return text;
}

std::string last_line(const std::string& path) {
  constexpr std::uint64_t most_bytes = 1 << 26;
  try {
    std::string text = read_text(path, most_bytes);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
  } catch (const Error&) {
    return "";
  }
}

// Multiply-adds of the training of a run, roughly: matrices and attention, three times for forward and backward.
double work_of(const RunConfig& config) {
  const double length = static_cast<double>(config.make_task()->splits().front().length);
  const double width = static_cast<double>(config.model.width), layers = static_cast<double>(config.model.layers);
  const double of_a_token = layers * (12 * width * width + 2 * length * width);
  return 3 * of_a_token * length * static_cast<double>(config.run.batch) * static_cast<double>(config.run.steps);
}

}  // namespace

std::vector<std::int64_t> parse_seeds(const std::string& text) {
  constexpr std::int64_t most = 10'000;
  std::vector<std::int64_t> seeds;
  for (const std::string& part : split_text(text, ',')) {
    const std::size_t dots = part.find("..");
    const std::int64_t first = parse_seed(part.substr(0, dots));
    const std::int64_t last = dots == std::string::npos ? first : parse_seed(part.substr(dots + 2));
    if (last < first || last - first >= most) {
      throw UsageError(concat("[seeds] '", part, "' is not a range of 1 to ", most, " seeds"));
    }
    for (std::int64_t seed = first; seed <= last; ++seed) {
      const bool twice = std::find(seeds.begin(), seeds.end(), seed) != seeds.end();
      if (twice) throw UsageError(concat("[seeds] --seeds ", text, ": seed ", seed, " is there twice"));
      seeds.push_back(seed);
    }
  }
  return seeds;
}

RunPlan::RunPlan(std::string folder, std::vector<PlannedRun> runs, const CommonOptions& common)
    : folder_(std::move(folder)), runs_(std::move(runs)), common_(common), child_(common) {
  if (folder_.empty()) throw UsageError("[usage] the name of the folder for the runs is empty");
  std::set<std::string> names;
  for (const PlannedRun& run : runs_) {
    if (!names.insert(run.name).second) throw UsageError(concat("[usage] ", run.name, " is there twice"));
    bytes_of_run_ = std::max(bytes_of_run_, check_can_train(run.config).total());
  }
}

std::int64_t RunPlan::count(RunState state) const {
  return std::count_if(runs_.begin(), runs_.end(), [state](const PlannedRun& run) { return run.state == state; });
}

void RunPlan::take_stock() {
  std::error_code error;
  const std::string file = concat(folder_, "/", sweep_file_name);
  if (fs::exists(file, error)) {
    const JsonValue before = read_sweep_file(file);
    for (const JsonValue& entry : before.elements("runs")) {
      const bool planned = std::any_of(runs_.begin(), runs_.end(),
                                       [&](const PlannedRun& run) { return run.name == entry.string("name"); });
      if (!planned) others_.push_back(entry);
    }
  }
  for (PlannedRun& run : runs_) {
    const std::string path = path_of(run);
    if (!fs::exists(path + "/config.json", error)) continue;
    const RunFolder run_folder = RunFolder::open(path);
    const std::vector<std::string> other = differences(run_folder.config(), run.config);
    check(other.empty(), "sweep", "'", path, "' holds a run with other settings: ", other.empty() ? "" : other.front(),
          "; choose another folder");
    if (run_folder.finished()) run_folder.read_results();  // damaged ones are no end of a run
    const bool whole = run_folder.finished() && open_when_free(path).finished();
    run.state = whole ? RunState::finished : RunState::unfinished;
  }
}

std::optional<double> RunPlan::seconds_left(std::int64_t jobs) const {
  struct Rate {
    double seconds = 0, work = 0;
  };
  std::map<const TaskEntry*, Rate> rates;
  Rate all;
  for (const PlannedRun& run : runs_) {
    if (is_open(run)) continue;
    const JsonValue results = RunFolder::open(path_of(run)).read_results();
    if (!results.contains("seconds")) continue;
    for (Rate* rate : {&rates[run.config.task], &all}) {
      rate->seconds += results.real("seconds");
      rate->work += work_of(run.config);
    }
  }
  if (all.work <= 0) return std::nullopt;
  double seconds = 0;
  for (const PlannedRun& run : runs_) {
    if (!is_open(run)) continue;
    const auto known = rates.find(run.config.task);
    const Rate& rate = known == rates.end() ? all : known->second;
    seconds += work_of(run.config) * rate.seconds / rate.work;
  }
  return seconds / static_cast<double>(jobs);
}

std::int64_t RunPlan::jobs(std::int64_t wanted) const {
  const auto open = std::max<std::int64_t>(1, std::count_if(runs_.begin(), runs_.end(), is_open));
  if (wanted > 0) return std::min(wanted, open);
  if (default_device().type == DeviceType::cuda) return 1;
  const auto cores = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const double fitting = bytes_of_run_ > 0 ? available_memory() / bytes_of_run_ : static_cast<double>(cores);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min(fitting, static_cast<double>(cores))), 1, open);
}

void RunPlan::execute(std::int64_t jobs) {
  std::error_code error;
  fs::create_directories(folder_, error);
  check(!error, "sweep", "cannot make the folder '", folder_, "': ", error.message());
  write_state();
  const std::atomic<bool>& stop = watch_signals();
  const auto cores = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  jobs_ = jobs;
  if (child_.threads == 0) child_.threads = std::max<std::int64_t>(1, cores / jobs);
  child_.quiet = true;
  child_.json = false;  // its log is for people
  say(concat(runs_.size(), " runs, ", count(RunState::finished), " of them finished before; ", jobs, " at a time with ",
             child_.threads, child_.threads == 1 ? " thread" : " threads", " each"));
  std::size_t next = 0;
  bool told_to_stop = false;
  while (true) {
    while (!stop && static_cast<std::int64_t>(children_.size()) < jobs && next < runs_.size()) {
      if (is_open(runs_[next])) start(next);
      ++next;
    }
    if (children_.empty() && (stop || next == runs_.size())) break;
    if (stop && !told_to_stop) {
      for (const auto& [process, child] : children_) kill(process, signal_exit_code() - 128);
      told_to_stop = true;
    }
    constexpr int patience_ms = 200;
    if (const auto ended = wait_for_child(patience_ms)) finish(*ended, stop);
  }
}

void RunPlan::say(const std::string& text) const { tally::say(common_, printable(text)); }

void RunPlan::write_state() const {
  JsonValue runs = JsonValue::array();
  for (const JsonValue& entry : others_) runs.push(entry);
  for (const PlannedRun& run : runs_) {
    runs.push(JsonValue::object({{"name", run.name}, {"state", name_of(run.state)}, {"config", run.config.to_json()}}));
  }
  write_file_atomically(concat(folder_, "/", sweep_file_name),
                        write_json(JsonValue::object({{"format", 1}, {"runs", std::move(runs)}})) + "\n");
}

void RunPlan::start(std::size_t index) {
  PlannedRun& run = runs_[index];
  const bool begun = run.state == RunState::unfinished;
  const std::string path = path_of(run);
  try {
    begun ? open_when_free(path) : RunFolder::create(path, run.config, false);
    // A new run too is one that is resumed, from step 0: its folder alone says what it is.
    std::vector<std::string> words{"resume", path};
    for (const std::string& word : child_.words()) words.push_back(word);
    children_.emplace(start_tally(words, path + ".log"), Child{index, Clock::now()});
    run.state = RunState::unfinished;
    say(concat(run.name, ": ", begun ? "goes on" : "starts"));
  } catch (const Error& why) {
    run.state = RunState::failed;
    complain(concat(run.name, ": failed: ", why.what()));
  }
  write_state();
}

void RunPlan::finish(const EndedProcess& ended, bool stopping) {
  const auto child = children_.find(ended.process);
  if (child == children_.end()) return;
  PlannedRun& run = runs_[child->second.index];
  const double seconds = std::chrono::duration<double>(Clock::now() - child->second.begin).count();
  children_.erase(child);
  const bool interrupted = ended.code == exit_code::interrupted || ended.code == exit_code::terminated;
  if (ended.code == exit_code::done) {
    run.state = RunState::finished;
    const std::optional<double> left = seconds_left(jobs_);
    say(concat(run.name, ": done in ", duration_text(seconds), ": ", results_text(RunFolder::open(path_of(run))), "; ",
               count(RunState::finished), " of ", runs_.size(),
               left && *left > 0 ? concat(", about ", duration_text(*left), " left") : ""));
  } else if (stopping && interrupted) {
    say(concat(run.name, ": interrupted"));
  } else {
    run.state = ended.code == exit_code::diverged ? RunState::diverged : RunState::failed;
    complain(concat(run.name, ": ", name_of(run.state), ", exit code ", ended.code, " after ", duration_text(seconds),
                    ": ", last_line(path_of(run) + ".log")));
  }
  write_state();
}

std::string RunPlan::states_text() const {
  std::string text = concat(count(RunState::finished), " of ", runs_.size(), " runs finished");
  for (const RunState state : run_states) {
    if (state != RunState::finished && count(state) > 0) text += concat(", ", count(state), " ", name_of(state));
  }
  return text + concat("; all in ", printable(folder_), "\n");
}

int RunPlan::code() const {
  if (const int signal = signal_exit_code(); signal != 0) return signal;
  return count(RunState::failed) + count(RunState::diverged) > 0 ? exit_code::failed : exit_code::done;
}

JsonValue RunPlan::states_json() const {
  JsonValue states = JsonValue::object();
  for (const RunState state : run_states) states.set(name_of(state), count(state));
  return states;
}

}  // namespace tally

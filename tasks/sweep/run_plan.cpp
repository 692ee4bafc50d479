#include "tasks/sweep/run_plan.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <thread>

#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/file_descriptor.hpp"
#include "core/io/lease.hpp"
#include "core/io/reader.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/command_line/training.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/statistics.hpp"
#include "tasks/runs/files.hpp"
#include "tasks/runs/run_folder.hpp"

namespace tally {

pid_t start_tally(const std::vector<std::string>& arguments, const std::string& log) {
  const FileDescriptor file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  check(file.open(), "sweep", "cannot write {}: {}", log, std::strerror(errno));
  std::vector<std::string> words{"tally"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t child = fork();
  check(child >= 0, "sweep", "cannot start another process: {}", std::strerror(errno));
  if (child > 0) return child;
  // Only calls that are safe after a fork. A separate process group keeps the terminal's Ctrl-C from the child: the
  // parent forwards it, and two signals would stop the child at once.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(143);  // it ended before the line above
  dup2(file.number(), STDOUT_FILENO);
  dup2(file.number(), STDERR_FILENO);
  execv("/proc/self/exe", argv.data());
  constexpr char message[] = "tally: cannot start itself again\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
  _exit(127);
}

std::optional<EndedProcess> wait_for_child(int milliseconds) {
  constexpr int pause = 5;
  for (int waited = 0;; waited += pause) {
    int status = 0;
    const pid_t process = waitpid(-1, &status, WNOHANG);
    if (process > 0) return EndedProcess{process, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    if (waited >= milliseconds) return std::nullopt;
    const timespec time{0, pause * 1'000'000L};
    if (nanosleep(&time, nullptr) != 0) return std::nullopt;
  }
}

namespace fs = std::filesystem;
namespace {

std::int64_t parse_seed(const std::string& text) {
  const std::optional<std::int64_t> seed = whole_number(text);
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // as of --seed
  if (!seed || *seed < 0 || *seed > most) {
    throw UsageError(formatted("[seeds] '{}' is not a seed, 0 to {}; --seeds takes 1..3 or 1,2,5", text, most));
  }
  return *seed;
}

// The folder of a planned run holds a different run.
class OtherRun : public Error {
 public:
  using Error::Error;
};

bool is_open(const PlannedRun& run) { return run.state != RunState::finished; }

// "in-distribution 0.1%, ood-sparse 1.8%"
std::string results_text(const RunFolder& folder) {
  std::string text;
  const JsonValue results = folder.read_results();
  for (const JsonValue& e : results.elements("evaluations")) {
    text += formatted("{}{} {}", text.empty() ? "" : ", ", e.string("split"),
                      percent_text(evaluation_from_json(e).token_error()));
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

// Approximate multiply-adds to train a run: matmuls and attention, times three for forward and backward.
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
      throw UsageError(formatted("[seeds] '{}' is not a range of 1 to {} seeds", part, most));
    }
    for (std::int64_t seed = first; seed <= last; ++seed) {
      const bool twice = std::find(seeds.begin(), seeds.end(), seed) != seeds.end();
      if (twice) throw UsageError(formatted("[seeds] --seeds {}: seed {} is there twice", text, seed));
      seeds.push_back(seed);
    }
  }
  return seeds;
}

RunPlan::RunPlan(std::string folder, std::vector<PlannedRun> runs, const CommonOptions& common, double seconds)
    : folder_(std::move(folder)), runs_(std::move(runs)), common_(common), child_(common), claims_(seconds) {
  if (folder_.empty()) throw UsageError("[usage] the name of the folder for the runs is empty");
  std::set<std::string> names;
  for (const PlannedRun& run : runs_) {
    if (!names.insert(run.name).second) throw UsageError(formatted("[usage] {} is there twice", run.name));
  }
}

std::int64_t RunPlan::count(RunState state) const {
  return std::count_if(runs_.begin(), runs_.end(), [state](const PlannedRun& run) { return run.state == state; });
}

bool RunPlan::is_too_large(const PlannedRun& run) const { return is_open(run) && !run.too_large.empty(); }

bool RunPlan::can_finish() const {
  return std::none_of(runs_.begin(), runs_.end(),
                      [this](const PlannedRun& run) { return run.state == RunState::failed || is_too_large(run); });
}

void RunPlan::take_stock() {
  if (const std::string file = formatted("{}/{}", folder_, sweep_file_name); path_exists(file)) read_sweep_file(file);
  for (PlannedRun& run : runs_) {
    claims_.take_stock(path_of(run));
    if (!has_config(path_of(run))) continue;
    try {
      look_at(run);
    } catch (const OtherRun&) {
      throw;
    } catch (const RunInUse&) {
      run.state = RunState::unfinished;
    } catch (const Error& why) {
      run.state = RunState::failed;
      complain(formatted("{}: failed: {}", run.name, why.what()));
    }
  }
  std::map<std::string, std::string> too_large;  // by configuration; runs that differ in the seed need the same memory
  for (PlannedRun& run : runs_) {
    if (!is_open(run)) continue;
    RunConfig config = run.config.clone();
    config.run.seed = 0;
    const auto [known, is_new] = too_large.emplace(write_json(config.to_json()), "");
    try {
      if (is_new) bytes_of_run_ = std::max(bytes_of_run_, check_can_train(run.config).total());
    } catch (const DoesNotFit& why) {
      known->second = why.what();
    }
    run.too_large = known->second;
  }
}

bool RunPlan::look_at(PlannedRun& run) const {
  const std::string path = path_of(run);
  const RunFolder run_folder = RunFolder::open(path);
  const std::vector<std::string> other = differences(run_folder.config(), run.config);
  if (!other.empty()) {
    throw OtherRun(
        formatted("[sweep] '{}' holds a run with other settings: {}; choose another folder", path, other.front()));
  }
  run.state = RunState::unfinished;
  if (!run_folder.finished()) return false;
  run_folder.read_results();  // damaged results do not count as the end of a run
  try {
    if (RunFolder::open_to_train(path).finished()) run.state = RunState::finished;
  } catch (const RunInUse&) {  // its process is about to end
  }
  return run.state == RunState::finished;
}

std::optional<double> RunPlan::seconds_left(std::int64_t jobs) const {
  struct Rate {
    double seconds = 0, work = 0;
  };
  if (std::ranges::none_of(runs_, is_open)) return 0;  // the data of finished runs may be gone
  std::map<const TaskEntry*, Rate> rates;
  Rate all;
  for (const PlannedRun& run : runs_) {
    if (is_open(run)) continue;
    const JsonValue results = RunFolder::open(path_of(run)).read_results();
    if (!results.contains("seconds")) continue;
    const double evaluations = results.contains("evaluation_seconds") ? results.real("evaluation_seconds") : 0;
    for (Rate* rate : {&rates[run.config.task], &all}) {
      rate->seconds += results.real("seconds") + evaluations;
      rate->work += work_of(run.config);
    }
  }
  if (all.work <= 0) return std::nullopt;
  double seconds = 0, longest = 0;
  for (const PlannedRun& run : runs_) {
    if (!is_open(run) || ended_badly(run.state) || is_too_large(run)) continue;
    double share = 1;
    if (run.state == RunState::unfinished) {
      const std::vector<std::int64_t> steps = RunFolder::open(path_of(run)).checkpoint_steps();
      if (!steps.empty()) share -= static_cast<double>(steps.back()) / static_cast<double>(run.config.run.steps);
    }
    const auto known = rates.find(run.config.task);
    const Rate& rate = known == rates.end() ? all : known->second;
    const double needed = std::max(0.0, share) * work_of(run.config) * rate.seconds / rate.work;
    seconds += needed;
    longest = std::max(longest, needed);
  }
  return std::max(longest, seconds / static_cast<double>(jobs));  // the last runs cannot overlap with others
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
  write_list();
  const Clock::time_point begin = Clock::now();
  const std::atomic<bool>& stop = watch_signals();
  const auto cores = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  jobs_ = jobs;
  next_ = 0;
  // thread_count() respects OMP_NUM_THREADS.
  if (child_.threads == 0) child_.threads = std::clamp<std::int64_t>(cores / jobs, 1, thread_count());
  child_.quiet = true;
  child_.json = false;  // its log is for people
  std::set<std::string> notes;
  for (const PlannedRun& run : runs_) notes.insert(run.config.warmup_note());
  for (const std::string& note : notes) {
    if (!note.empty()) say(note);
  }
  say(formatted("{} runs, {} of them finished before; {} at a time with {} each", runs_.size(),
                count(RunState::finished), jobs, plural(child_.threads, "thread")));
  bool told_to_stop = false;
  while (true) {
    if (!stop) fill();
    if (children_.empty() && (stop || (next_ == runs_.size() && in_use_.empty()))) break;
    if (stop && !told_to_stop) {
      for (const auto& [process, child] : children_) kill(process, signal_exit_code() - 128);
      told_to_stop = true;
    }
    renew_claims();
    constexpr int patience_ms = 200;
    if (const auto ended = wait_for_child(patience_ms)) finish(*ended, stop);
  }
  seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
}

void RunPlan::fill() {
  const auto room = [this] { return static_cast<std::int64_t>(children_.size()) < jobs_; };
  for (; room() && next_ < runs_.size(); ++next_) {
    if (is_open(runs_[next_])) start(next_);
  }
  // Then the runs that others train, one check at a time however many there are. Finished ones are counted, and
  // abandoned ones are resumed.
  if (!room() || in_use_.empty()) return;
  const std::size_t index = in_use_.front();
  in_use_.pop_front();
  start(index);
}

std::string RunPlan::work_text() const {
  return formatted("{} trained in {}, {} at a time with {} each", plural(trained_, "run"), duration_text(seconds_),
                   jobs_, plural(child_.threads, "thread"));
}

void RunPlan::say(const std::string& text) const { tally::say(common_, printable(text)); }

void RunPlan::start(std::size_t index) {
  PlannedRun& run = runs_[index];
  const std::string path = path_of(run);
  try {
    // A process that trains the run outside a plan, or that is about to exit, holds no claim.
    const bool begun = has_config(path);
    if (begun) RunFolder::open_to_train(path);
    if (is_too_large(run) && !(begun && look_at(run))) throw DoesNotFit(run.too_large);  // and leaves it to others
    switch (claims_.take(path)) {
      case RunClaims::Answer::in_use: return wait_for_others(run, holder_text(claims_.found()));
      case RunClaims::Answer::ours: start_claimed(index); break;
      case RunClaims::Answer::ended:
        run.state = claims_.found_state();
        say(formatted("{}: {} meanwhile, by {}", run.name, name_of(run.state), holder_text(claims_.found())));
    }
  } catch (const RunInUse&) {
    claims_.end(path, RunState::unfinished);
    wait_for_others(run, "another process");
  } catch (const Error& why) {
    run.state = RunState::failed;
    claims_.end(path, run.state);
    complain(formatted("{}: failed: {}", run.name, why.what()));
  }
  note(run);
}

void RunPlan::start_claimed(std::size_t index) {
  PlannedRun& run = runs_[index];
  const std::string path = path_of(run);
  // A plan of another table may have created the run after take_stock().
  const bool begun = has_config(path);
  if (!begun) RunFolder::create(path, run.config, false);
  if (begun && look_at(run)) {
    claims_.end(path, run.state);
    say(formatted("{}: finished meanwhile", run.name));
    return;
  }
  // A new run is also resumed, from step 0: its folder holds the whole configuration.
  std::vector<std::string> words{"resume", path, formatted("--claim={}", claims_.number_of(path))};
  for (const std::string& word : child_.words()) words.push_back(word);
  children_.emplace(start_tally(words, path + ".log"), Child{index, Clock::now()});
  run.state = RunState::unfinished;
  say(formatted("{}: {}", run.name, begun ? "goes on" : "starts"));
}

void RunPlan::wait_for_others(PlannedRun& run, const std::string& who) {
  const auto index = static_cast<std::size_t>(&run - runs_.data());
  if (told_.insert(index).second) say(formatted("{}: {} is training it", run.name, who));
  run.state = has_config(path_of(run)) ? RunState::unfinished : RunState::waiting;
  in_use_.push_back(index);
}

void RunPlan::renew_claims() {
  for (const std::string& path : claims_.renew()) {
    for (auto& [process, child] : children_) {
      if (path_of(runs_[child.index]) != path || child.lost) continue;
      child.lost = true;
      kill(process, SIGKILL);
    }
  }
}

bool RunPlan::left_to_others(PlannedRun& run) {
  try {
    RunFolder::open_to_train(path_of(run));
    return look_at(run);
  } catch (const RunInUse&) {
    wait_for_others(run, "another process");
    return true;
  } catch (const Error&) {
    return false;
  }
}

void RunPlan::finish(const EndedProcess& ended, bool stopping) {
  const auto child = children_.find(ended.process);
  if (child == children_.end()) return;
  PlannedRun& run = runs_[child->second.index];
  const double seconds = std::chrono::duration<double>(Clock::now() - child->second.begin).count();
  const bool lost = child->second.lost;
  children_.erase(child);
  const bool interrupted = ended.code == exit_code::interrupted || ended.code == exit_code::terminated;
  if (ended.code == exit_code::done) {
    run.state = RunState::finished;
    ++trained_;
    const std::optional<double> left = seconds_left(jobs_);
    say(formatted("{}: done in {}: {}; {} of {}{}", run.name, duration_text(seconds),
                  results_text(RunFolder::open(path_of(run))), count(RunState::finished), runs_.size(),
                  left && *left > 0 ? formatted(", about {} left", duration_text(*left)) : ""));
  } else if (lost) {
    complain(formatted("{}: left to others: its lease could not be renewed in time", run.name));
    claims_.forget(path_of(run));
    wait_for_others(run, "another process");
  } else if (stopping && interrupted) {
    say(formatted("{}: interrupted", run.name));
  } else if (ended.code == exit_code::failed && left_to_others(run)) {
    say(formatted("{}: {} by another process", run.name, run.state == RunState::finished ? "finished" : "trained"));
  } else {
    run.state = ended.code == exit_code::diverged ? RunState::diverged : RunState::failed;
    complain(formatted("{}: {}, exit code {} after {}: {}", run.name, name_of(run.state), ended.code,
                       duration_text(seconds), last_line(path_of(run) + ".log")));
  }
  claims_.end(path_of(run), run.state);
  note(run);
}

std::string RunPlan::states_text() const {
  std::string text = formatted("{} of {} runs finished", count(RunState::finished), runs_.size());
  for (const RunState state : run_states) {
    if (state != RunState::finished && count(state) > 0) text += formatted(", {} {}", count(state), name_of(state));
  }
  return text + formatted("; all in {}\n", printable(folder_));
}

int RunPlan::code() const {
  if (const int signal = signal_exit_code(); signal != 0) return signal;
  return count(RunState::finished) < static_cast<std::int64_t>(runs_.size()) ? exit_code::failed : exit_code::done;
}

std::string RunPlan::left_text(std::int64_t jobs) const {
  const std::optional<double> seconds = seconds_left(jobs);
  return formatted("{} of {} runs are finished; {}", count(RunState::finished), runs_.size(),
                   std::ranges::none_of(runs_, is_open) ? "nothing is left to train"
                   : !seconds                           ? "the time is known when one has finished"
                              : formatted("the rest takes about {}, {} at a time", duration_text(*seconds), jobs));
}

Result RunPlan::overview(std::int64_t jobs) const {
  Result result;
  JsonValue runs = JsonValue::array(), states = JsonValue::object();
  std::map<std::string, std::int64_t> counts;
  for (const PlannedRun& run : runs_) {
    const std::string path = path_of(run);
    const Claim claim = newest_claim(path);
    const bool at_work = is_open(run) && claim.open() && !claim.holder.gone();
    const bool gave_up = is_open(run) && std::ranges::any_of(run_states, [&](RunState state) {
                           return ended_badly(state) && claim.state == name_of(state);
                         });
    const std::string state = at_work ? "at work" : gave_up ? claim.state : std::string(name_of(run.state));
    std::int64_t saved = 0;
    if (run.state == RunState::unfinished) {
      const std::vector<std::int64_t> steps = RunFolder::open(path).checkpoint_steps();
      if (!steps.empty()) saved = steps.back();
    }
    ++counts[state];
    JsonValue entry = JsonValue::object({{"run", run.name},
                                         {"state", state},
                                         {"saved_step", saved},
                                         {"steps", run.config.run.steps},
                                         {"claims", claim.number}});
    if (!claim.holder.host.empty()) {
      entry.set("host", claim.holder.host).set("process", claim.holder.process);
      entry.set("renewed", claim.time).set("lease_seconds", claim.seconds);
    }
    if (is_too_large(run)) entry.set("does_not_fit", run.too_large);
    runs.push(std::move(entry));
    result.text += formatted(
        "{}: {}{}{}\n", printable(path), is_too_large(run) ? formatted("does not fit: {}", run.too_large) : state,
        saved > 0 ? formatted(", step {} of {} saved", saved, run.config.run.steps) : "",
        at_work || gave_up
            ? printable(formatted("; {}, {} by its clock, claim {}", holder_text(claim), claim.time, claim.number))
            : "");
  }
  for (const auto& [state, count] : counts) states.set(state, count);
  result.value = JsonValue::object({{"folder", folder_}, {"states", std::move(states)}, {"runs", std::move(runs)}});
  if (const std::optional<double> left = seconds_left(jobs)) result.value.set("seconds_left", *left);
  result.code = can_finish() ? exit_code::done : exit_code::failed;
  return result;
}

JsonValue RunPlan::states_json() const {
  JsonValue states = JsonValue::object();
  for (const RunState state : run_states) states.set(name_of(state), count(state));
  return states;
}

std::vector<PlannedRun> listed_runs(const std::string& folder) {
  const std::string file = formatted("{}/{}", folder, sweep_file_name);
  check(path_exists(file), "sweep",
        "'{}' holds no sweep: it has no {}; what it is to train is said with --task, --pe and --seeds", folder,
        sweep_file_name);
  std::vector<PlannedRun> runs;
  const JsonValue sweep = read_sweep_file(file);
  in_file(file, [&] {
    for (const JsonValue& run : sweep.elements("runs")) {
      const std::string& name = run.string("name");
      const fs::path path(name);
      check(!name.empty() && path.is_relative() && std::ranges::count(path, fs::path("..")) == 0, "sweep",
            "'{}' is no name of a run's folder", name);
      runs.push_back({name, RunConfig::from_json(run.at("config"))});
      runs.back().config.validate();
    }
  });
  return runs;
}

void RunPlan::write_list() {
  make_folder("sweep", folder_);
  write_state();
}

void RunPlan::note(const PlannedRun& run) const {
  if (!beside_others_ || ended_badly(run.state)) write_state();
}

void RunPlan::write_state() const {
  // Other plans may write to the folder at the same time, so their entries are kept.
  const std::string file = formatted("{}/{}", folder_, sweep_file_name);
  const FileDescriptor lock = wait_for_lock_file(file + ".lock");
  std::map<std::string, const PlannedRun*> own;
  for (const PlannedRun& run : runs_) own[run.name] = &run;
  JsonValue runs = JsonValue::array(), before;
  if (path_exists(file)) {
    before = read_sweep_file(file);
    for (const JsonValue& entry : before.elements("runs")) {
      const auto known = own.find(entry.string("name"));
      const bool ended_elsewhere = beside_others_ && ended_badly(run_state_from_text(entry.string("state"))) &&
                                   known != own.end() && known->second->state == RunState::unfinished;
      if (!ended_elsewhere && known != own.end() && known->second->state != RunState::waiting) continue;
      runs.push(entry);
      if (known != own.end()) own.erase(known);
    }
  }
  for (const PlannedRun& run : runs_) {
    if (!own.contains(run.name)) continue;
    runs.push(JsonValue::object({{"name", run.name}, {"state", name_of(run.state)}, {"config", run.config.to_json()}}));
  }
  const JsonValue after = JsonValue::object({{"format", 1}, {"runs", std::move(runs)}});
  if (after != before) write_file_atomically(file, write_json(after) + "\n");
}

}  // namespace tally

// tally sweep: a grid of runs, every encoding with every seed and every combination of settings, several at a time.
// Each is a process of its own in DIR/<encoding>-[key=value-]seed<N>, with what it prints in DIR/<run>.log; sweep.json
// keeps what the folders do not tell. Started again, finished runs are skipped and the others go on.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "core/io/atomic_file.hpp"
#include "core/io/reader.hpp"
#include "tasks/printable.hpp"
#include "tasks/report.hpp"
#include "tasks/run_folder.hpp"
#include "tasks/runner/child_process.hpp"
#include "tasks/runner/commands.hpp"
#include "tasks/runner/config_options.hpp"
#include "tasks/runner/grid.hpp"
#include "tasks/runner/progress.hpp"
#include "tasks/runner/signals.hpp"
#include "tasks/runner/training.hpp"
#include "tasks/statistics.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

struct SweepSettings {
  std::string folder, seeds = "1..3";
  std::vector<std::string> grid;  // "model.layers=1,2"
  std::int64_t jobs = 0;          // 0: as many as cores
  bool dry_run = false;
};

std::int64_t parse_seed(const std::string& text) {
  const std::optional<std::int64_t> seed = whole_number(text);
  if (!seed || *seed < 0) throw UsageError(concat("[sweep] '", text, "' is not a seed; --seeds takes 1..3 or 1,2,5"));
  return *seed;
}

// "1..3,7" -> 1, 2, 3, 7.
std::vector<std::int64_t> parse_seeds(const std::string& text) {
  constexpr std::int64_t most = 10'000;
  std::vector<std::int64_t> seeds;
  for (const std::string& part : split_text(text, ',')) {
    const std::size_t dots = part.find("..");
    const std::int64_t first = parse_seed(part.substr(0, dots));
    const std::int64_t last = dots == std::string::npos ? first : parse_seed(part.substr(dots + 2));
    if (last < first || last - first >= most) {
      throw UsageError(concat("[sweep] '", part, "' is not a range of 1 to ", most, " seeds"));
    }
    for (std::int64_t seed = first; seed <= last; ++seed) {
      const bool twice = std::find(seeds.begin(), seeds.end(), seed) != seeds.end();
      if (twice) throw UsageError(concat("[sweep] --seeds ", text, ": seed ", seed, " is there twice"));
      seeds.push_back(seed);
    }
  }
  return seeds;
}

struct PlannedRun {
  std::string name, path;
  RunConfig config;
  RunState state = RunState::waiting;
};

// A name of a folder: what could be a path is not.
std::string folder_name(std::string text) {
  for (char& c : text) {
    if (c == '/' || static_cast<unsigned char>(c) <= ' ') c = '_';
  }
  return text;
}

// Every encoding with every combination of values, seed by seed, so that what is there after half the time compares
// all. A setting of an encoding is left out of the names of the encodings that do not have it.
std::vector<PlannedRun> make_plan(const SweepSettings& settings, const ConfigOptions& options) {
  const std::vector<GridDimension> dimensions = parse_grid(settings.grid);
  std::vector<std::pair<std::string, RunConfig>> variants;
  std::set<std::string> used;
  for (const std::string& encoding : options.encodings()) {
    const RunConfig base = options.resolve(encoding);
    std::vector<GridDimension> own;
    for (const GridDimension& dimension : dimensions) {
      if (dimension.key == "seed") throw UsageError("[sweep] seeds are given with --seeds");
      if (dimension.key.starts_with("pe.") && !base.has(dimension.key)) continue;
      own.push_back(dimension);
      used.insert(dimension.key);
    }
    for (const Settings& combination : combinations(own)) {
      std::string name = base.encoding.text();
      RunConfig config = base.clone();
      as_usage([&] {
        for (const auto& [key, value] : combination) {
          config.set(key, value);
          name += concat("-", key, "=", value);
        }
        config.validate();
        config.refuse_idle();
      });
      variants.emplace_back(std::move(name), std::move(config));
    }
  }
  for (const GridDimension& dimension : dimensions) {
    if (!used.contains(dimension.key)) {
      const RunConfig any = options.resolve(options.encodings().front());
      throw UsageError(
          concat("[sweep] no encoding has the option ", dimension.key, did_you_mean_option(any, dimension.key)));
    }
  }

  std::vector<PlannedRun> plan;
  for (const std::int64_t seed : parse_seeds(settings.seeds)) {
    for (const auto& [name, config] : variants) {
      PlannedRun run;
      run.name = folder_name(concat(name, "-seed", seed));
      run.path = concat(settings.folder, "/", run.name);
      run.config = config.clone();
      run.config.run.seed = seed;
      const bool twice =
          std::any_of(plan.begin(), plan.end(), [&](const PlannedRun& other) { return other.name == run.name; });
      if (twice) throw UsageError(concat("[sweep] ", run.name, " is there twice"));
      plan.push_back(std::move(run));
    }
  }
  return plan;
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

class Sweep {
 public:
  Sweep(const SweepSettings& settings, std::vector<PlannedRun> plan, const CommonOptions& common)
      : settings_(settings), plan_(std::move(plan)), common_(common), child_(common) {}

  Result run() {
    const std::atomic<bool>& stop = watch_signals();
    std::error_code error;
    fs::create_directories(settings_.folder, error);
    check(!error, "sweep", "cannot make the folder '", settings_.folder, "': ", error.message());
    take_stock();
    const auto waiting = std::count_if(plan_.begin(), plan_.end(), [](const auto& r) { return is_open(r); });
    const auto cores = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
    // Runs share the cores, but each takes a GPU for itself.
    const std::int64_t usual = default_device().type == DeviceType::cuda ? 1 : cores;
    const std::int64_t jobs =
        std::clamp<std::int64_t>(settings_.jobs > 0 ? settings_.jobs : usual, 1, std::max<std::int64_t>(1, waiting));
    if (child_.threads == 0) child_.threads = std::max<std::int64_t>(1, cores / jobs);
    child_.quiet = true;
    child_.json = false;  // its log is for people
    say(concat(plan_.size(), " runs, ", plan_.size() - static_cast<std::size_t>(waiting), " of them finished before; ",
               jobs, " at a time with ", child_.threads, child_.threads == 1 ? " thread" : " threads", " each"));

    std::size_t next = 0;
    bool told_to_stop = false;
    while (true) {
      while (!stop && static_cast<std::int64_t>(children_.size()) < jobs && next < plan_.size()) {
        if (is_open(plan_[next])) start(next);
        ++next;
      }
      if (children_.empty() && (stop || next == plan_.size())) break;
      if (stop && !told_to_stop) {
        for (const auto& [process, child] : children_) kill(process, signal_exit_code() - 128);
        told_to_stop = true;
      }
      constexpr int patience_ms = 200;
      if (const auto ended = wait_for_child(patience_ms)) finish(*ended, stop);
    }
    return conclude();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    std::size_t place;
    Clock::time_point begin;
  };

  static bool is_open(const PlannedRun& run) { return run.state != RunState::finished; }

  void say(const std::string& text) { tally::say(common_, printable(text)); }

  // What is there already. Throws Error before anything is started when a folder holds another run.
  void take_stock() {
    const std::string file = state_path();
    std::error_code none;
    if (fs::exists(file, none)) {
      const JsonValue before = read_sweep_file(file);
      for (const JsonValue& entry : before.elements("runs")) {
        const bool planned = std::any_of(plan_.begin(), plan_.end(),
                                         [&](const PlannedRun& run) { return run.name == entry.string("name"); });
        if (!planned) others_.push_back(entry);
      }
    }
    for (PlannedRun& run : plan_) {
      std::error_code error;
      if (!fs::exists(run.path + "/config.json", error)) continue;
      const RunFolder folder = RunFolder::open(run.path);
      const std::vector<std::string> other = differences(folder.config(), run.config);
      check(other.empty(), "sweep", "'", run.path,
            "' holds a run with other settings: ", other.empty() ? "" : other.front(), "; choose another folder");
      if (folder.finished()) folder.read_results();  // damaged ones are no end of a run
      const bool whole = folder.finished() && RunFolder::open_to_train(run.path).finished();
      run.state = whole ? RunState::finished : RunState::unfinished;
    }
    write_state();
  }

  std::string state_path() const { return concat(settings_.folder, "/", sweep_file_name); }

  void write_state() const {
    JsonValue runs = JsonValue::array();
    for (const JsonValue& entry : others_) runs.push(entry);
    for (const PlannedRun& run : plan_) {
      runs.push(
          JsonValue::object({{"name", run.name}, {"state", name_of(run.state)}, {"config", run.config.to_json()}}));
    }
    write_file_atomically(state_path(),
                          write_json(JsonValue::object({{"format", 1}, {"runs", std::move(runs)}})) + "\n");
  }

  std::string log_of(const PlannedRun& run) const { return run.path + ".log"; }

  void start(std::size_t place) {
    PlannedRun& run = plan_[place];
    const bool begun = run.state == RunState::unfinished;
    try {
      if (!begun) RunFolder::create(run.path, run.config, false);
      // A new run too is one that is resumed, from step 0: its folder alone says what it is.
      std::vector<std::string> words{"resume", run.path};
      for (const std::string& word : child_.words()) words.push_back(word);
      const pid_t process = start_tally(words, log_of(run));
      children_.emplace(process, Child{place, Clock::now()});
      run.state = RunState::unfinished;
      say(concat(run.name, ": ", begun ? "goes on" : "starts"));
    } catch (const Error& why) {
      run.state = RunState::failed;
      complain(concat(run.name, ": failed: ", why.what()));
    }
    write_state();
  }

  void finish(const EndedProcess& ended, bool stopping) {
    const auto child = children_.find(ended.process);
    if (child == children_.end()) return;
    PlannedRun& run = plan_[child->second.place];
    const double seconds = std::chrono::duration<double>(Clock::now() - child->second.begin).count();
    children_.erase(child);
    const bool interrupted = ended.code == exit_code::interrupted || ended.code == exit_code::terminated;
    if (ended.code == exit_code::done) {
      run.state = RunState::finished;
      say(concat(run.name, ": done in ", duration_text(seconds), ": ", results_text(RunFolder::open(run.path))));
    } else if (stopping && interrupted) {
      say(concat(run.name, ": interrupted"));
    } else {
      run.state = ended.code == exit_code::diverged ? RunState::diverged : RunState::failed;
      complain(concat(run.name, ": ", name_of(run.state), ", exit code ", ended.code, " after ", duration_text(seconds),
                      ": ", last_line(log_of(run))));
    }
    write_state();
  }

  std::int64_t count(RunState state) const {
    return std::count_if(plan_.begin(), plan_.end(), [state](const PlannedRun& run) { return run.state == state; });
  }

  Result conclude() const {
    const Report report = make_report({settings_.folder});
    JsonValue states = JsonValue::object();
    std::string text =
        concat("\n", report_text(report), "\n", count(RunState::finished), " of ", plan_.size(), " runs finished");
    for (const RunState state : run_states) {
      states.set(name_of(state), count(state));
      if (state != RunState::finished && count(state) > 0) text += concat(", ", count(state), " ", name_of(state));
    }
    text += concat("; all in ", printable(settings_.folder), "\n");
    const bool bad = count(RunState::failed) + count(RunState::diverged) > 0;
    const int signal = signal_exit_code();
    return {signal != 0 ? signal
            : bad       ? exit_code::failed
                        : exit_code::done,
            JsonValue::object(
                {{"folder", settings_.folder}, {"states", std::move(states)}, {"report", report_json(report)}}),
            std::move(text)};
  }

  const SweepSettings& settings_;
  std::vector<PlannedRun> plan_;
  std::vector<JsonValue> others_;  // of earlier sweeps into the folder, as sweep.json has them
  const CommonOptions& common_;
  CommonOptions child_;  // those of every run
  std::map<pid_t, Child> children_;
};

Result run_sweep(const SweepSettings& settings, const ConfigOptions& options, const CommonOptions& common) {
  if (settings.folder.empty()) throw UsageError("[usage] the name of the folder for the runs is empty");
  std::vector<PlannedRun> plan = make_plan(settings, options);
  for (const PlannedRun& run : plan) options.blaming_file([&] { check_can_train(run.config); });
  if (!settings.dry_run) return Sweep(settings, std::move(plan), common).run();
  Result result;
  JsonValue runs = JsonValue::array();
  for (const PlannedRun& run : plan) {
    runs.push(run.path);
    result.text += printable(run.path) + "\n";
  }
  result.value = JsonValue::object({{"runs", std::move(runs)}});
  return result;
}

}  // namespace

std::function<Result()> declare_sweep(CommandLine& line) {
  const auto settings = std::make_shared<SweepSettings>();
  line.add("DIR", &settings->folder, "folder for the runs", {.required = true});
  const auto options = ConfigOptions::declare(line, true);
  line.add("--seeds", &settings->seeds, "1..3, or 1,2,5");
  line.add("--set", &settings->grid, "key=value,value: an option with several values; may be given again");
  line.add("--jobs", &settings->jobs, "runs at a time, sharing the cores; 0: one for each core, on a GPU one",
           {.least = 0, .most = 1024});
  line.add("--dry-run", &settings->dry_run, "name the runs and stop");
  return [settings, options, &common = line.common] { return run_sweep(*settings, *options, common); };
}

}  // namespace tally

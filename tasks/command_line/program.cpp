// Dispatch: maps the command line to a command, and its outcome to output and exit code.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <thread>

#include "core/distributed/mpi.hpp"
#include "core/distributed/process_group.hpp"
#include "core/version.hpp"
#include "nn/options.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/command_line/value_text.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/terminal.hpp"
#include "tasks/runs/train.hpp"

namespace tally {
namespace {

std::string overview() {
  std::string text =
      formatted("tally {}: position encodings in small transformers\n\nUsage: tally COMMAND ...\n", version);
  std::string_view group;
  for (const Command& command : commands()) {
    if (group != command.group) text += formatted("\n{}:\n", group = command.group);
    text += formatted("  {}{}{}\n", command.name, std::string(14 - command.name.size(), ' '), command.summary);
  }
  return text +
         "\n'tally COMMAND --help' explains one of them. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 diverged,\n"
         "130/143 interrupted.\n";
}

int run_command(const Command& command, std::vector<std::string> words) {
  CommandLine line(std::move(words));
  const std::function<Result()> run = command.declare(line);
  if (const std::string help = line.parse(command.name, command.summary, command.examples); !help.empty()) {
    if (ProcessGroup::world().first()) std::cout << help;
    return exit_code::done;
  }
  line.common.apply();
  // Only the first rank prints.
  if (!ProcessGroup::world().first()) {
    line.common.quiet = true;
    line.common.json = false;
    check(std::freopen("/dev/null", "w", stdout) != nullptr, "mpi", "cannot open /dev/null");
    return run().code;
  }
  return print(line.common, run());
}

}  // namespace

std::span<const Command> commands() {
  static const std::array all{
#define TALLY_COMMAND(name, group, summary, examples) \
  Command{name_from_stem(#name), group, summary, examples, declare_##name},
#include "tasks/command_line/commands.def"
#undef TALLY_COMMAND
  };
  return all;
}

void say(const CommonOptions& common, std::string_view text) {
  if (!common.quiet) (common.json ? std::cerr : std::cout) << text << "\n" << std::flush;
}

void tell(const CommonOptions& common, std::string_view text) {
  if (!common.json) std::cout << with_bold_headers(std::string(text), stdout) << "\n" << std::flush;
}

void complain(std::string_view text) {
  std::fprintf(stderr, "%s %s\n", styled("tally:", Style::red, stderr).c_str(), printable(text).c_str());
}

int print(const CommonOptions& common, const Result& result) {
  if (common.json) {
    if (!result.value.is_null()) std::cout << write_json(result.value) << "\n";
  } else if (!(common.quiet && result.notice)) {
    std::cout << with_bold_headers(
        result.text.empty() && !result.value.is_null() ? value_text(result.value) : result.text, stdout);
  }
  return result.code;
}

namespace {

// Ends the program, and with it all ranks that train together. For an error that all ranks share, only the first prints
// it.
int failed(int code, std::string_view why) {
  const ProcessGroup& ranks = ProcessGroup::world();
  if (ranks.alone()) {
    complain(why);
    return code;
  }
  constexpr std::int64_t patience_ms = 1000, turn_ms = 100;
  if (!ranks.first()) std::this_thread::sleep_for(std::chrono::milliseconds(patience_ms + turn_ms * ranks.rank()));
  complain(formatted("rank {} of {}: {}", ranks.rank(), ranks.size(), why));
  std::cout.flush();
  ranks.abort_all(code);
}

// Whether srun started several processes that would all train the whole run. The first one prints the error. A
// worker holds a claim, so no other process trains its run.
bool refused_of_srun(const std::vector<std::string>& words) {
  const bool trains = words[0] == "train" || words[0] == "resume";
  const std::int64_t processes = mpi::started_by_srun();
  if (!trains || processes == 1) return false;
  if (std::ranges::any_of(words, [](const std::string& word) { return word.starts_with("--claim"); })) return false;
  if (mpi::own_number_of_srun() == 0) {
    complain(formatted(
        "[mpi] srun started {} processes that do not know of each other; 'mpirun -np {} tally {}' within sbatch or "
        "salloc shares one run among them, and 'tally sweep --worker', which srun may start, many runs",
        processes, processes, words[0]));
  }
  return true;
}

// Whether several processes were started for a command that must run once. The first one prints the error.
bool refused_together(const std::string& command) {
  if (command == "train" || command == "resume" || mpi::started_processes() == 1) return false;
  if (mpi::own_rank() == 0) {
    complain(formatted(
        "[mpi] mpirun started {} processes, and 'tally {}' is the work of one; train and resume share a run{}",
        mpi::started_processes(), command, command == "sweep" ? ", and --worker shares a sweep without mpirun" : ""));
  }
  return true;
}

// Whether the words of a command ask for help.
bool asks_for_help(const std::vector<std::string>& words) {
  return std::any_of(words.begin() + 1, words.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

// Commands of earlier versions, each with its replacement.
constexpr std::pair<std::string_view, std::string_view> former_commands[] = {{"data", "describe TASK --sequences N"},
                                                                             {"dump", "inspect --out FILE.safetensors"},
                                                                             {"explain", "inspect"},
                                                                             {"export", "convert"},
                                                                             {"gradcheck", "check --only gradients"},
                                                                             {"import", "convert"},
                                                                             {"list", "describe"},
                                                                             {"predict", "inspect --text TEXT"},
                                                                             {"show", "describe FILE"},
                                                                             {"vary", "eval --over"}};

int run_words(const std::vector<std::string>& words) {
  const bool speaks = mpi::own_rank() == 0;  // for all processes of mpirun
  if (words.empty()) {
    if (speaks) {
      complain("no command");
      std::fprintf(stderr, "\n%s", overview().c_str());
    }
    return exit_code::usage;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    if (speaks) std::cout << overview();
    return exit_code::done;
  }
  if (words[0] == "--version") {
    if (speaks) std::cout << "tally " << version << "\n";
    return exit_code::done;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
    if (command.name != words[0]) continue;
    try {
      if (!asks_for_help(words)) {
        if (refused_of_srun(words) || refused_together(command.name)) return exit_code::usage;
        ProcessGroup::join();
      } else if (!speaks || (mpi::started_by_srun() > 1 && mpi::own_number_of_srun() > 0)) {
        return exit_code::done;
      }
      return run_command(command, {words.begin() + 1, words.end()});
    } catch (const UsageError& error) {
      return failed(exit_code::usage, error.what());
    } catch (const Diverged& error) {
      return failed(exit_code::diverged, error.what());
    } catch (const std::bad_alloc&) {
      return failed(exit_code::failed, "the system has no memory left");
    } catch (const std::exception& error) {
      return failed(exit_code::failed, error.what());
    }
  }
  if (!speaks) return exit_code::usage;
  std::string hint = did_you_mean(words[0], names) + " ('tally --help' lists them)";
  for (const auto& [former, now] : former_commands) {
    if (former == words[0]) hint = formatted("; it is 'tally {}' now", now);
  }
  complain(formatted("unknown command '{}'{}", words[0], hint));
  return exit_code::usage;
}

}  // namespace

int run_program(int argc, char** argv) {
  // With SIGXFSZ ignored, a file that exceeds its size limit is an error with a message, as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const int code = run_words({argv + std::min(argc, 1), argv + argc});
  std::cout.flush();
  ProcessGroup::leave();
  // Also checked after a failure, for example when the reader of the output has exited.
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  complain("cannot write to the standard output");
  return code == exit_code::done ? exit_code::failed : code;
}

}  // namespace tally

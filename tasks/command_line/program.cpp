// Dispatch: maps the command line to a command, and its outcome to output and exit code.
#include <signal.h>
#include <unistd.h>

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
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/print/printable.hpp"
#include "tasks/print/terminal.hpp"
#include "tasks/runs/train.hpp"

namespace tally {
namespace {

constexpr std::size_t gap = 2;  // between columns; also the indentation

std::string word_of(const JsonValue& value) {
  if (value.is_string()) return printable(value.string());
  if (value.is_real()) return to_text(value.real());
  if (!value.is_array()) return value.is_null() ? "" : write_json(value);
  std::vector<std::string> words;
  for (const JsonValue& element : value.elements()) words.push_back(word_of(element));
  return formatted("[{}]", joined(words));
}

bool is_numbers(const JsonValue& value) {
  return value.is_array() && !value.elements().empty() &&
         std::ranges::all_of(value.elements(), [](const JsonValue& one) { return one.is_number(); });
}

bool is_cell(const JsonValue& value) { return is_numbers(value) || !(value.is_array() || value.is_object()); }

// Whether the value fits on the line of its name.
bool is_word(const JsonValue& value) {
  return is_cell(value) && !(value.is_string() && value.string().find('\n') != std::string::npos);
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t n = 0; n < row.size(); ++n) widths[n] = std::max(widths[n], row[n].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t n = 0; n < row.size(); ++n) line += row[n] + std::string(widths[n] + gap - row[n].size(), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

bool is_table(const JsonValue& value) {
  return std::ranges::all_of(value.elements(), [](const JsonValue& row) {
    return row.is_object() && std::ranges::all_of(row.members(), [](const auto& one) { return is_cell(one.value); });
  });
}

std::string table_text(const JsonValue& value) {
  std::vector<std::vector<std::string>> rows(1);
  for (const JsonValue& row : value.elements()) {
    for (const JsonMember& member : row.members()) {
      if (std::ranges::count(rows[0], member.name) == 0) rows[0].push_back(member.name);
    }
  }
  for (const JsonValue& row : value.elements()) {
    std::vector<std::string>& cells = rows.emplace_back();
    for (const std::string& name : rows[0]) cells.push_back(row.contains(name) ? word_of(row.at(name)) : "");
  }
  if (rows[0].size() <= 2) rows.erase(rows.begin());
  return aligned(rows);
}

std::string indented(const std::string& text) {
  std::vector<std::string> lines = split_text(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  std::string all;
  for (const std::string& line : lines) all += (line.empty() ? "" : std::string(gap, ' ') + line) + "\n";
  return all;
}

}  // namespace

std::string value_text(const JsonValue& value) {
  std::string text;
  if (is_word(value)) return word_of(value) + "\n";
  if (value.is_string()) {
    for (const std::string& line : split_text(value.string(), '\n')) text += printable(line) + "\n";
  } else if (value.is_array()) {
    if (is_table(value)) return table_text(value);
    for (const JsonValue& element : value.elements()) {
      text += formatted("{}{}", text.empty() || is_word(element) ? "" : "\n", value_text(element));
    }
  } else {
    std::vector<std::vector<std::string>> words;  // members of one line that follow each other
    for (const JsonMember& member : value.members()) {
      const bool is_empty = member.value.is_array() && member.value.elements().empty();
      if (is_word(member.value) || is_empty) {
        words.push_back({printable(member.name), is_empty ? "none" : word_of(member.value)});
        continue;
      }
      text += aligned(words) + printable(member.name) + "\n" + indented(value_text(member.value));
      words.clear();
    }
    text += aligned(words);
  }
  return text;
}

namespace {

std::atomic<bool> stop_asked{false};
std::atomic<int> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, number)) _exit(128 + number);
  stop_asked.store(true);
}

}  // namespace

const std::atomic<bool>& watch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return stop_asked;
}

int signal_exit_code() {
  const int number = first_signal.load();
  return number == 0 ? 0 : 128 + number;
}

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

// Whether several processes were started that would all do the same work. The first one prints the error. A worker
// holds a claim, so no other process trains its run.
bool refused_together(const std::vector<std::string>& words) {
  const bool trains = words[0] == "train" || words[0] == "resume";
  const auto is_claim = [](const std::string& word) { return word.starts_with("--claim"); };
  const std::int64_t by_srun = mpi::started_by_srun(), by_mpirun = mpi::started_processes();
  if (trains && by_srun != 1 && std::ranges::none_of(words, is_claim)) {
    if (mpi::own_number_of_srun() == 0) {
      complain(formatted(
          "[mpi] srun started {} processes that do not know of each other; 'mpirun -np {} tally {}' within sbatch or "
          "salloc shares one run among them, and 'tally sweep --worker', which srun may start, many runs",
          by_srun, by_srun, words[0]));
    }
    return true;
  }
  if (trains || by_mpirun == 1) return false;
  if (mpi::own_rank() == 0) {
    complain(formatted(
        "[mpi] mpirun started {} processes, and 'tally {}' is the work of one; train and resume share a run{}",
        by_mpirun, words[0], words[0] == "sweep" ? ", and --worker shares a sweep without mpirun" : ""));
  }
  return true;
}

// Whether the words of a command ask for help.
bool asks_for_help(const std::vector<std::string>& words) {
  return std::any_of(words.begin() + 1, words.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

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
        if (refused_together(words)) return exit_code::usage;
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
  complain(formatted("unknown command '{}'{} ('tally --help' lists them)", words[0], did_you_mean(words[0], names)));
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

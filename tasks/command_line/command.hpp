// A command of the program `tally`: one file in tasks/commands/ and one line in commands.def. It declares its options
// on a CommandLine and returns a Result. It does not print.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "tasks/checks/memory.hpp"
#include "tasks/text/prepare/token_file.hpp"

namespace tally {

// Exit codes of the program.
namespace exit_code {
inline constexpr int done = 0, failed = 1, usage = 2, diverged = 3, interrupted = 130, terminated = 143;
}

// A wrong command line: exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Calls f and turns an Error that it throws into a UsageError, since a wrong option is wrong usage whichever part of
// the library detects it. DoesNotFit and DamagedText keep their type.
template <class F>
auto as_usage(F&& f) {
  try {
    return f();
  } catch (const UsageError&) {
    throw;
  } catch (const DoesNotFit&) {
    throw;
  } catch (const DamagedText&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

// The target that an option's value is written to. A variable holds the default, which the help shows. A function gets
// the value as text, which is "" if `flag` allows the option without a value.
using Target = std::variant<bool*, std::int64_t*, std::string*, std::vector<std::int64_t>*, std::vector<std::string>*,
                            std::function<void(const std::string&)>>;

// Constraints on an option's value, and how the help shows it.
struct Rules {
  std::string group = "What";  // title in the help; "" hides the option
  std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> allowed = {};  // texts; any when empty
  // Options declared earlier that exclude this one, or without which it has no effect. "--out=*.html|*.htm": only with
  // a value that ends so; "WHAT=train": only with this value.
  std::vector<std::string> excludes = {}, needs = {};
  bool required = false;
  bool flag = false;       // for a function: the value may be omitted
  std::string usual = {};  // for a function: the default
};

struct Option {
  std::string names;  // "--count", "--pe.cope.p-max,--pe.p-max"; "RUN" for a positional argument
  Target target;
  std::string help;
  Rules rules;
};

class CommandLine;

// Options of every command: how to compute, and what to print.
struct CommonOptions {
  std::int64_t threads = 0;  // 0: all cores of the machine
  std::string device = "cpu";
  std::string precision = "f32";  // of matmuls
  bool debug_nan = false;         // name the operation whose result is not finite
  bool quiet = false;
  bool json = false;  // one JSON object on stdout at the end instead of text

  // The only list of these options, for the command line and for children().
  std::vector<Option> options();
  // The command-line words that pass the same options to another tally process.
  std::vector<std::string> words();
  // Applies them to the library. Throws UsageError for options that contradict each other.
  void apply() const;
};

// The options and arguments that a command declares, and the words that it was given.
class CommandLine {
 public:
  // `words`: those after the command's name. Options that depend on others (--pe cope brings --pe.p-max) look ahead in
  // them.
  explicit CommandLine(std::vector<std::string> words);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void add(std::string names, Target target, std::string help, Rules rules = {}) {
    options_.push_back({std::move(names), std::move(target), std::move(help), std::move(rules)});
  }

  const std::vector<std::string>& words() const { return words_; }
  // The last value of "--name V" or "--name=V" in the words, or an empty string.
  std::string look_ahead(std::string_view name) const;
  // All values.
  std::vector<std::string> look_ahead_all(std::string_view name) const;
  // The first word that is a folder with a config.json, which decides which options exist; empty if there is none.
  std::string look_ahead_folder() const;

  // Parses the words into the targets and `common`. Returns the help text if it was requested, else an empty string.
  // Throws UsageError naming the option and the nearest existing one.
  std::string parse(std::string_view command, std::string_view summary, std::string_view examples);

  CommonOptions common;
  std::string json_help = "print one JSON object at the end";
  std::string footer;  // of the help

 private:
  std::vector<std::string> words_;
  std::vector<Option> options_;
};

// The outcome of a command. With --json its value is printed in one line, otherwise its text. A value without a text is
// printed as is, one member per line.
struct Result {
  int code = exit_code::done;
  JsonValue value = {};  // null: nothing is printed at the end
  std::string text = {};
  bool notice = false;  // reports an action and holds no result: not printed with --quiet
};

// Prints a progress line for people: nothing with --quiet; on stderr with --json.
void say(const CommonOptions& common, std::string_view text);
// Prints a line of results, even with --quiet. Prints nothing with --json, because the final object has it.
void tell(const CommonOptions& common, std::string_view text);
// Prints an error. All errors of commands pass through here, so untrusted text in them is always escaped.
void complain(std::string_view text);
// Prints the result of a command and returns its exit code.
int print(const CommonOptions& common, const Result& result);

struct Command {
  std::string name;
  std::string_view group;  // a heading of the help
  std::string_view summary;
  std::string_view examples;  // indented lines
  // Declares options and arguments. Returns the function to run once they are parsed.
  std::function<Result()> (*declare)(CommandLine& line);
};

// All commands in the order of the help.
std::span<const Command> commands();

// The whole program; returns the exit code. Errors are printed on stderr as "tally: ...".
int run_program(int argc, char** argv);

// SIGINT and SIGTERM: the first asks the run to stop after the current step, the second ends the program at once.
// SIGPIPE is ignored: work continues when the reader of the output exits.

// Installs the handlers, again without effect; the flag becomes true at the first signal.
const std::atomic<bool>& watch_signals();
// 130 after SIGINT, 143 after SIGTERM, 0 when there was none.
int signal_exit_code();

// A JSON value as text for people. Commands without a text of their own print their value this way.

// One member per line, "step  500"; the parts of a member are indented below its name. A list of objects without parts
// is a table, with a header if it has more than two columns. Control characters are escaped.
std::string value_text(const JsonValue& value);

// Each command file defines one of these functions; see Command::declare.

#define TALLY_COMMAND(name, ...) std::function<Result()> declare_##name(CommandLine& line);
#include "tasks/command_line/commands.def"
#undef TALLY_COMMAND

}  // namespace tally

// A command of the program `tally`: one file in tasks/commands/ each, and its line in commands.def. It declares what it
// takes on a CommandLine and returns what it found out as a Result; printing is not its business.
#pragma once

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
#include "tasks/text/prepare/prepared_text.hpp"

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

// Calls f; an Error that it throws becomes a UsageError: a wrong option is wrong usage, whatever part of the library
// finds it. What is only too large for this machine is not, nor a damaged file.
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

// Refuses an option, if it is there, of which nothing is left in a dry run.
inline void refuse_with_dry_run(std::string_view command, std::string_view option, bool is_there) {
  if (!is_there) return;
  throw UsageError(
      concat("[", command, "] ", option, " has no effect with --dry-run; it is for what is trained and written"));
}

// What a word of the command line is read into; the variable holds the default, which the help shows. A function is
// given the value as text ("" where `flag` lets it stand alone).
using Target = std::variant<bool*, std::int64_t*, std::string*, std::vector<std::int64_t>*, std::vector<std::string>*,
                            std::function<void(const std::string&)>>;

// What is asked of an option's value, and how the help shows it.
struct Rules {
  std::string group = "What";  // title in the help; "" hides the option
  std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  std::vector<std::string> allowed = {};   // texts; any when empty
  std::vector<std::string> excludes = {};  // options declared before that cannot be given beside it
  bool required = false;
  bool flag = false;       // of a function: the option may stand without a value
  std::string usual = {};  // of a function: the default
};

struct Option {
  std::string names;  // "--count", "--pe.cope.p-max,--pe.p-max"; "RUN" for an argument that is told by its order
  Target target;
  std::string help;
  Rules rules;
};

class CommandLine;

// Options that every command understands: those that say what is computed with, and those that say how it is told.
struct CommonOptions {
  std::int64_t threads = 0;  // 0: as many as the machine has
  std::string device = "cpu";
  std::string precision = "f32";  // of matrix products
  bool debug_nan = false;         // name the operation whose result is not finite
  bool quiet = false;
  bool json = false;  // one JSON object on stdout at the end instead of text

  // All of them, for the command line and for children(): there is no other list.
  std::vector<Option> options();
  // The words that give another process of tally the same options.
  std::vector<std::string> words();
  // Makes the library compute so. Throws UsageError for what does not fit together.
  void apply() const;
};

// What a command takes, and the words that it was given.
class CommandLine {
 public:
  // `words`: those behind the command's name. Options that depend on others (--pe cope brings --pe.p-max) look ahead in
  // them.
  explicit CommandLine(std::vector<std::string> words) : words_(std::move(words)) {}
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void add(std::string names, Target target, std::string help, Rules rules = {}) {
    options_.push_back({std::move(names), std::move(target), std::move(help), std::move(rules)});
  }

  const std::vector<std::string>& words() const { return words_; }
  // The last value of "--name V" or "--name=V" in the words, empty when it is not there.
  std::string look_ahead(std::string_view name) const;
  // All of them.
  std::vector<std::string> look_ahead_all(std::string_view name) const;

  // Reads the words into the targets and into `common`. The text of the help when that was asked for, else empty.
  // Throws UsageError naming the option, and the nearest one that there is.
  std::string parse(std::string_view command, std::string_view summary);

  CommonOptions common;
  std::string json_help = "print one JSON object at the end";
  std::string footer;  // of the help

 private:
  std::vector<std::string> words_;
  std::vector<Option> options_;
};

// What a command has found out. With --json its value is printed in one line, else its text; a value without a text is
// printed as it stands, a member a line.
struct Result {
  int code = exit_code::done;
  JsonValue value = {};  // null: nothing is printed at the end
  std::string text = {};
  bool notice = false;  // tells what was done and holds no result: not printed with --quiet
};

// A line for people while a command is at work: nothing with --quiet; on stderr with --json.
void say(const CommonOptions& common, std::string_view text);
// A line of results: also with --quiet. Nothing with --json, whose object has it at the end.
void tell(const CommonOptions& common, std::string_view text);
// The one place through which errors of commands come: whatever they name is safe to print.
void complain(std::string_view text);
// Prints what a command has found out; its exit code.
int print(const CommonOptions& common, const Result& result);

struct Command {
  std::string name;
  std::string_view summary;
  // Declares options and arguments, and returns what to do once they are read.
  std::function<Result()> (*declare)(CommandLine& line);
};

// All commands in the order of the help.
std::span<const Command> commands();

// The whole program; returns the exit code. Errors are printed on stderr as "tally: ...".
int run_program(int argc, char** argv);

}  // namespace tally

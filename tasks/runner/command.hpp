// A command of the program `tally`: one file in tasks/runner/ each, listed in commands.cpp.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "tasks/memory.hpp"

namespace CLI {
class App;
}

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
// finds it. What is only too large for this machine is not.
template <class F>
auto as_usage(F&& f) {
  try {
    return f();
  } catch (const UsageError&) {
    throw;
  } catch (const DoesNotFit&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

// Options that every command understands.
struct CommonOptions {
  int threads = 0;  // 0: as many as the machine has
  std::string device = "cpu";
  std::string products = "f32";
  bool quiet = false;
  bool json = false;  // one JSON object on stdout at the end instead of text
  std::string json_help = "print one JSON object at the end";
};

struct Command {
  std::string_view name;
  std::string_view summary;
  // Declares options and arguments on `app` and returns what to do once they are read. `arguments` are the words behind
  // the command's name: options that depend on others (--pe cope brings --pe.p-max) look ahead in them.
  std::function<int()> (*declare)(CLI::App& app, CommonOptions& common, const std::vector<std::string>& arguments);
};

// All commands in the order of the help.
std::span<const Command> commands();

// The value of "--name V" or "--name=V" in the words, empty when it is not there.
std::string look_ahead(const std::vector<std::string>& arguments, std::string_view name);

// The whole program; returns the exit code. Errors are printed on stderr as "tally: ...".
int run_program(int argc, char** argv);

}  // namespace tally

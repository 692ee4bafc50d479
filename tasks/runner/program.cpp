// Dispatch: from the command line to one command and its exit code.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "core/backend.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device.hpp"
#include "core/kernels.hpp"
#include "core/precision.hpp"
#include "core/version.hpp"
#include "nn/options.hpp"
#include "tasks/printable.hpp"
#include "tasks/runner/command.hpp"
#include "tasks/train.hpp"

namespace tally {
namespace {

// The one place through which errors of commands come: whatever they name is safe to print.
void print_error(const std::string& text) { std::fprintf(stderr, "tally: %s\n", printable(text).c_str()); }

std::string overview() {
  std::string text =
      concat("tally ", version, ": position encodings in small transformers\n\nUsage: tally COMMAND ...\n\n");
  for (const Command& command : commands()) {
    text += concat("  ", command.name, std::string(12 - command.name.size(), ' '), command.summary, "\n");
  }
  return text +
         "\n'tally COMMAND --help' explains one of them. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 diverged,\n"
         "130/143 interrupted.\n";
}

// CLI11 names what it does not know; the nearest known option is added.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  std::string text = error.what();
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const std::string name = argument.substr(0, argument.find('='));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = nearest_name(name, known);
    text = concat("unknown option '", name, "'", near.empty() ? "" : concat("; did you mean '", near, "'?"));
    break;
  }
  return text;
}

int run_command(const Command& command, const std::vector<std::string>& arguments) {
  CLI::App app(std::string(command.summary), concat("tally ", command.name));
  app.get_formatter()->column_width(34);
  CommonOptions common;
  const std::function<int()> run = command.declare(app, common, arguments);
  app.add_option("--threads", common.threads, "threads to compute with; 0: all cores. Results are the same bits")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group("Common");
  app.add_option("--device", common.device, "cpu, cuda, cuda:1, or cuda-host: the CUDA kernels executed on the CPU")
      ->type_name("")
      ->capture_default_str()
      ->group("Common");
  app.add_option("--products", common.products,
                 "on CUDA devices: what matrix products of f32 round their operands to; tf32 and bf16 are faster")
      ->check(CLI::IsMember(std::vector<std::string>(product_precision_names.begin(), product_precision_names.end())))
      ->capture_default_str()
      ->group("Common");
  app.add_flag("--quiet", common.quiet, "print results only")->group("Common");
  app.add_flag("--json", common.json, common.json_help)->group("Common");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return exit_code::done;
  } catch (const CLI::ParseError& error) {
    print_error(concat(command.name, ": ", usage_text(app, error, arguments)));
    return exit_code::usage;
  }
  const Device device = as_usage([&] { return device_from_text(common.device); });
  kernels(device);  // an unbuilt backend is refused before anything is done
  if (common.products != "f32" && device.type == DeviceType::cpu) {
    throw UsageError(
        concat("--products ", common.products, " is for --device cuda and cuda-host; the CPU's products are f32"));
  }
  const auto precision = std::ranges::find(product_precision_names, common.products);
  set_product_precision(static_cast<ProductPrecision>(precision - product_precision_names.begin()));
  set_default_device(device);
  if (common.threads > 0) set_thread_count(common.threads);
  return run();
}

}  // namespace

std::string look_ahead(const std::vector<std::string>& arguments, std::string_view name) {
  std::string value;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == name && i + 1 < arguments.size()) value = arguments[i + 1];
    if (arguments[i].starts_with(concat(name, "="))) value = arguments[i].substr(name.size() + 1);
  }
  return value;
}

namespace {

int run_words(const std::vector<std::string>& words) {
  if (words.empty()) {
    print_error("no command");
    std::fprintf(stderr, "\n%s", overview().c_str());
    return exit_code::usage;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    std::cout << overview();
    return exit_code::done;
  }
  if (words[0] == "--version") {
    std::cout << "tally " << version << "\n";
    return exit_code::done;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
    if (command.name != words[0]) continue;
    try {
      return run_command(command, {words.begin() + 1, words.end()});
    } catch (const UsageError& error) {
      print_error(error.what());
      return exit_code::usage;
    } catch (const Diverged& error) {
      print_error(error.what());
      return exit_code::diverged;
    } catch (const std::bad_alloc&) {
      print_error("the system has no memory left");
      return exit_code::failed;
    } catch (const std::exception& error) {
      print_error(error.what());
      return exit_code::failed;
    }
  }
  const std::string near = nearest_name(words[0], names);
  print_error(concat("unknown command '", words[0], "'", near.empty() ? "" : concat("; did you mean '", near, "'?"),
                     " ('tally --help' lists them)"));
  return exit_code::usage;
}

}  // namespace

int run_program(int argc, char** argv) {
  // A file that may not grow further is an error with a message, like a full disk, and not the end.
  std::signal(SIGXFSZ, SIG_IGN);
  const int code = run_words({argv + std::min(argc, 1), argv + argc});
  std::cout.flush();
  // Also what failed on the way, as when a training's reader has left.
  if (std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  print_error("cannot write to the standard output");
  return code == exit_code::done ? exit_code::failed : code;
}

}  // namespace tally

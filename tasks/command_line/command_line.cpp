// The command line, parsed by CLI11. Only this file includes its headers, because they take seconds to compile.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <type_traits>

#include "autograd/finite.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/device/device.hpp"
#include "core/device/kernels.hpp"
#include "core/distributed/mpi.hpp"
#include "core/distributed/process_group.hpp"
#include "core/precision.hpp"
#include "nn/options.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/command_line/config_options.hpp"
#include "tasks/runs/config.hpp"
#include "tasks/runs/files.hpp"

namespace tally {
namespace {

// Shows a default, but no type, range or excluded options: the help text names values, and errors explain the rest.
class HelpFormatter final : public CLI::Formatter {
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";  // a flag
    if (!option->get_default_str().empty()) return "=" + option->get_default_str();
    if (!option->get_positional()) return option->get_expected_min() == 0 ? "" : " VALUE";
    return option->get_expected_max() > 1 ? " ..." : "";
  }
};

constexpr auto any_least = std::numeric_limits<std::int64_t>::min(),
               any_most = std::numeric_limits<std::int64_t>::max();

template <class T>
CLI::Option* declare(CLI::App& app, const Option& option, T* value) {
  if constexpr (std::is_same_v<T, bool>) return app.add_flag(option.names, *value, option.help);
  CLI::Option* declared = app.add_option(option.names, *value, option.help);
  if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) declared->delimiter(',');
  if (std::is_same_v<T, std::vector<std::string>> && option.names.starts_with('-')) declared->expected(1)->take_all();
  if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::int64_t>) declared->capture_default_str();
  return declared;
}

CLI::Option* declare(CLI::App& app, const Option& option, const std::function<void(const std::string&)>& set) {
  CLI::Option* declared = app.add_option_function<std::string>(option.names, set, option.help);
  declared->expected(option.rules.flag ? 0 : 1, 1);
  // CLI11 would use a default as the value of a flag given without one.
  if (!option.rules.flag) declared->default_str(option.rules.usual);
  return declared;
}

void declare(CLI::App& app, const Option& option) {
  CLI::Option* declared = std::visit([&](const auto& target) { return declare(app, option, target); }, option.target);
  const Rules& rules = option.rules;
  if (option.names.starts_with('-')) declared->group(rules.group);
  if (rules.least > any_least || rules.most < any_most) declared->check(CLI::Range(rules.least, rules.most));
  if (!rules.allowed.empty()) {
    declared->check(CLI::IsMember(rules.allowed));
    declared->description(formatted("{} ({})", option.help, joined(rules.allowed, "|")));
  }
  for (const std::string& other : rules.excludes) {
    if (other.find('=') == std::string::npos) declared->excludes(app.get_option(other));
  }
  for (const std::string& other : rules.needs) {
    if (other.find('=') == std::string::npos) declared->needs(app.get_option(other));
  }
  declared->required(rules.required);
}

// "NAME is required: table or figure: table2, ...".
std::string required_text(const CLI::App& app, const CLI::RequiredError& error) {
  const std::string text = error.what();
  const CLI::Option* option = app.get_option_no_throw(text.substr(0, text.find(' ')));
  if (option == nullptr) return text;
  return formatted("{}: {} ('{} --help')", text, option->get_description(), app.get_name());
}

// CLI11 names the unknown option; this adds the option that was probably meant.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back(name);
  }
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(2, word.find('=') - 2);
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string meant = meant_option(name, known);
    return formatted("unknown option '--{}'{}", name,
                     meant.empty() ? formatted("; '{} --help' lists all", app.get_name())
                                   : formatted("; did you mean '--{}'?", meant));
  }
  if (const auto* required = dynamic_cast<const CLI::RequiredError*>(&error)) return required_text(app, *required);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string text = error.what(), name = text.substr(0, text.find(':'));
    const auto gives = [&](const std::string& word) { return word.substr(0, word.find('=')) == name; };
    if (std::ranges::count_if(words, gives) > 1) return formatted("{} is given more than once", name);
    if (text.find(" required ") != std::string::npos) return formatted("{} needs a value", name);
  }
  return error.what();
}

// CLI11 would take the next word for the value.
void refuse_empty_values(std::string_view command, const CLI::App& app, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") return;  // arguments alone
    const std::string name = word.substr(0, word.find('='));
    if (name.size() + 1 != word.size() || app.get_option_no_throw(name) == nullptr) continue;
    throw UsageError(
        formatted("{}: {} has no value behind '='; an empty text is a word of its own: {} ''", command, name, name));
  }
}

// "*.html" allows every value that ends so.
bool is_allowed(const std::string& value, const std::string& allowed) {
  return std::ranges::any_of(split_text(allowed, '|'), [&](const std::string& one) {
    return one.starts_with('*') ? value.ends_with(one.substr(1)) : value == one;
  });
}

// Refuses a given option that has no effect with the values of other options.
void refuse_idle(std::string_view command, const CLI::App& app, const Option& option) {
  const std::string name = option.names.substr(0, option.names.find(','));
  if (app.get_option(name)->count() == 0) return;
  const auto refuse = [&](const std::string& why) {
    throw UsageError(formatted("{}: {} has no effect {}", command, name, why));
  };
  for (const std::vector<std::string>* conditions : {&option.rules.needs, &option.rules.excludes}) {
    const bool is_needed = conditions == &option.rules.needs;
    for (const std::string& condition : *conditions) {
      const std::size_t equals = condition.find('=');
      if (equals == std::string::npos) continue;
      const std::string other = condition.substr(0, equals), allowed = condition.substr(equals + 1);
      const CLI::Option* declared = app.get_option(other);
      const std::string value = declared->count() > 0 ? declared->results().back() : declared->get_default_str();
      if (is_allowed(value, allowed) == is_needed) continue;
      std::string wanted = is_needed ? formatted("; it is for {}", joined(split_text(allowed, '|'), " or ")) : "";
      std::erase(wanted, '*');
      refuse(value.empty() ? formatted("without {}{}", other, wanted)
                           : formatted("with {} {}{}", other, value, wanted));
    }
  }
}

}  // namespace

CommandLine::CommandLine(std::vector<std::string> words) : words_(std::move(words)) {
  for (std::string& word : words_) {
    const std::size_t end = word.find('=');
    if (word.starts_with("--")) word = option_spelling(word.substr(0, end)) + word.substr(std::min(end, word.size()));
  }
}

std::vector<std::string> CommandLine::look_ahead_all(std::string_view name) const {
  std::vector<std::string> values;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    if (words_[i] == name && i + 1 < words_.size()) values.push_back(words_[i + 1]);
    if (words_[i].starts_with(formatted("{}=", name))) values.push_back(words_[i].substr(name.size() + 1));
  }
  return values;
}

std::string CommandLine::look_ahead(std::string_view name) const {
  const std::vector<std::string> values = look_ahead_all(name);
  return values.empty() ? "" : values.back();
}

std::string CommandLine::look_ahead_folder() const {
  const auto found =
      std::ranges::find_if(words_, [](const std::string& word) { return !word.starts_with('-') && has_config(word); });
  return found == words_.end() ? "" : *found;
}

std::string CommandLine::parse(std::string_view command, std::string_view summary, std::string_view examples) {
  CLI::App app(formatted("{}\n\nExamples:\n{}", summary, examples), formatted("tally {}", command));
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(34);
  app.footer(footer);
  std::vector<Option> common_options = common.options();
  common_options.back().help = json_help;
  for (const Option& option : options_) declare(app, option);
  for (const Option& option : common_options) declare(app, option);
  refuse_empty_values(command, app, words_);
  try {
    app.parse(std::vector<std::string>(words_.rbegin(), words_.rend()));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw UsageError(formatted("{}: {}", command, usage_text(app, error, words_)));
  }
  for (const Option& option : options_) refuse_idle(command, app, option);
  return "";
}

std::vector<Option> CommonOptions::options() {
  const std::vector<std::string> precisions(matmul_precision_names.begin(), matmul_precision_names.end());
  const Rules rules{.group = "Common"};
  return {
      {"--threads",
       &threads,
       "number of threads; 0: all cores. Results have the same bits for any number",
       {.group = "Common", .least = 0, .most = 4096}},
      {"--device", &device, "cpu, cuda, cuda:1, or cuda-host: the CUDA kernels executed on the CPU", rules},
      {"--precision",
       &precision,
       "precision of matmul operands in f32 models (core/precision.md); bf16 and, on CUDA devices, tf32 are faster",
       {.group = "Common", .allowed = precisions}},
      {"--debug-nan", &debug_nan, "stop at the first result that is not finite, and name its operation; slower", rules},
      {"--quiet", &quiet, "print only results", rules},
      {"--json", &json, "", rules}};
}

std::vector<std::string> CommonOptions::words() {
  std::vector<std::string> words;
  for (const Option& option : options()) {
    if (bool* const* flag = std::get_if<bool*>(&option.target)) {
      if (**flag) words.push_back(option.names);
    } else if (std::int64_t* const* number = std::get_if<std::int64_t*>(&option.target)) {
      words.push_back(formatted("{}={}", option.names, **number));
    } else {
      words.push_back(formatted("{}={}", option.names, *std::get<std::string*>(option.target)));
    }
  }
  return words;
}

void CommonOptions::apply() const {
  Device wanted = as_usage([&] { return device_from_text(device); });
  if (wanted.type == DeviceType::cuda && !ProcessGroup::world().alone()) {
    if (wanted.index != 0) {
      throw UsageError(
          formatted("[mpi] --device {} is one GPU; of several processes each takes the one of its number on its "
                    "machine: --device cuda",
                    device));
    }
    wanted.index = static_cast<int>(mpi::own_rank_on_machine());
  }
  kernels(wanted);  // an unbuilt backend is refused before any work starts
  if (precision == "tf32" && wanted.type == DeviceType::cpu) {
    throw UsageError("--precision tf32 is for --device cuda and cuda-host; the CPU's products are f32 or bf16");
  }
  const auto found = std::ranges::find(matmul_precision_names, precision);
  set_matmul_precision(static_cast<MatmulPrecision>(found - matmul_precision_names.begin()));
  set_default_device(wanted);
  set_finite_checks(debug_nan);
  if (threads > 0) set_thread_count(static_cast<int>(threads));
}

}  // namespace tally

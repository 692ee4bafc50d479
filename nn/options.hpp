// Options of tasks, models, encodings and runs: one struct each with one `visit`, from which the command-line flags,
// the JSON, the help and the printed text are derived. Names are written as on the command line: "p-max",
// "weight-decay".
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tally {

// An end of the range of a real option. A plain number belongs to the range; `above` and `below` give an end that does
// not: real("beta1", beta1, "...", 0, below(1)) allows 0 <= value < 1.
struct RangeEnd {
  double value;
  bool open;
  constexpr RangeEnd(double number) : RangeEnd(number, false) {}  // NOLINT: a number is an end
  constexpr RangeEnd(double number, bool is_open) : value(number), open(is_open) {}
};
constexpr RangeEnd above(double least) { return {least, true}; }
constexpr RangeEnd below(double most) { return {most, true}; }

class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;
  virtual void flag(std::string_view name, bool& value, std::string_view help) = 0;
  // Allowed: minimum <= value <= maximum.
  virtual void integer(std::string_view name, std::int64_t& value, std::string_view help, std::int64_t minimum = 0,
                       std::int64_t maximum = std::numeric_limits<std::int32_t>::max()) = 0;
  virtual void real(std::string_view name, double& value, std::string_view help,
                    RangeEnd minimum = std::numeric_limits<double>::lowest(),
                    RangeEnd maximum = std::numeric_limits<double>::max()) = 0;
  virtual void choice(std::string_view name, std::string& value, const std::vector<std::string_view>& allowed,
                      std::string_view help) = 0;
  virtual void text(std::string_view name, std::string& value, std::string_view help) = 0;
  // The next option has an effect only if the choice or flag `other` has one of these values. Otherwise check_values
  // refuses any value of it except the default.
  virtual void only_with(std::string_view other, const std::vector<std::string_view>& values) {
    (void)other, (void)values;
  }
};

class Options {
 public:
  virtual ~Options() = default;
  virtual void visit(OptionVisitor& visitor) = 0;
  // Throws Error naming options that contradict each other. check_values handles only_with.
  virtual void validate() const {}
  virtual std::unique_ptr<Options> clone() const = 0;
  virtual std::unique_ptr<Options> defaults() const = 0;
};

// struct RopeOptions : OptionsOf<RopeOptions> { double base = 10000; void visit(OptionVisitor& v) override {...} };
template <class Derived>
class OptionsOf : public Options {
 public:
  std::unique_ptr<Options> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
  std::unique_ptr<Options> defaults() const override { return std::make_unique<Derived>(); }
};

// No options.
struct NoOptions final : OptionsOf<NoOptions> {
  void visit(OptionVisitor&) override {}
};

using OptionValue = std::variant<bool, std::int64_t, double, std::string>;

struct OptionInfo {
  std::string name;
  OptionValue value;
  std::string help;
  std::vector<std::string> allowed;  // of a choice
  std::string range;                 // "1 to 8", "in [0, 1)", empty when any value is fine
  std::string other = {};            // of only_with; empty if that was not called
  std::vector<std::string> needed = {};

  // The help text with the allowed values: "kind of norm (layer|rms)", "a share (in [0, 1))".
  std::string help_with_range() const;
};

// All options with their current values.
std::vector<OptionInfo> list_options(Options& options);

// Sets one option from text ("64", "3e-4", "true", "half"). Throws Error("[where] ...") naming the option if it is
// unknown (with the nearest known name), cannot be parsed as its type, or is out of range; the options are then
// unchanged.
void set_option(Options& options, std::string_view where, std::string_view name, std::string_view text);

// Checks options that C++ code has filled in: throws Error("[where] ...") for a value that set_option would refuse, and
// for an option without effect (OptionVisitor::only_with).
void check_values(const Options& options, std::string_view where);

// "64", "0.5", "true", "half".
std::string to_text(const OptionValue& value);

// The candidate nearest to `name` by edit distance, empty when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// "; did you mean 'step'?" with the nearest candidate; empty if none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// The same, or "; known are step, size" if none is near.
std::string did_you_mean_or_known(std::string_view name, const std::vector<std::string>& candidates);

// The texts between separators, except separators within brackets: "a,b[c,d]" -> {"a", "b[c,d]"}.
std::vector<std::string_view> split(std::string_view text, char separator);

// {"a", "b"} -> "a, b".
std::string joined(const std::vector<std::string>& parts, std::string_view separator = ", ");

// "flip_flop" -> "flip-flop": the registered name for a file with this stem.
std::string name_from_stem(std::string_view stem);

}  // namespace tally

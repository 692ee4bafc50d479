// Options by name: listing, setting from text, and suggestions for a misspelt name.
#include "nn/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <system_error>
#include <utility>

#include "core/error.hpp"

namespace tally {
namespace {

constexpr std::int64_t no_upper_bound = std::numeric_limits<std::int32_t>::max();

std::string range_text(std::int64_t minimum, std::int64_t maximum) {
  if (maximum >= no_upper_bound) return formatted("at least {}", minimum);
  return formatted("{} to {}", minimum, maximum);
}

std::string range_text(RangeEnd minimum, RangeEnd maximum) {
  const bool has_minimum = minimum.value > std::numeric_limits<double>::lowest();
  const bool has_maximum = maximum.value < std::numeric_limits<double>::max();
  if (has_minimum && has_maximum) {
    if (!minimum.open && !maximum.open) return formatted("{} to {}", minimum.value, maximum.value);
    return formatted("in {}{}, {}{}", minimum.open ? '(' : '[', minimum.value, maximum.value, maximum.open ? ')' : ']');
  }
  if (has_minimum) return formatted("{}{}", minimum.open ? "above " : "at least ", minimum.value);
  if (has_maximum) return formatted("{}{}", maximum.open ? "below " : "at most ", maximum.value);
  return "";
}

// False for NaN.
bool holds(RangeEnd minimum, double number, RangeEnd maximum) {
  return (minimum.open ? minimum.value < number : minimum.value <= number) &&
         (maximum.open ? number < maximum.value : number <= maximum.value);
}

class Lister final : public OptionVisitor {
 public:
  void flag(std::string_view name, bool& value, std::string_view help) override { add(name, value, help, {}, ""); }
  void integer(std::string_view name, std::int64_t& value, std::string_view help, std::int64_t minimum,
               std::int64_t maximum) override {
    add(name, value, help, {}, range_text(minimum, maximum));
  }
  void real(std::string_view name, double& value, std::string_view help, RangeEnd minimum, RangeEnd maximum) override {
    add(name, value, help, {}, range_text(minimum, maximum));
  }
  void choice(std::string_view name, std::string& value, const std::vector<std::string_view>& allowed,
              std::string_view help) override {
    add(name, value, help, {allowed.begin(), allowed.end()}, "");
  }
  void text(std::string_view name, std::string& value, std::string_view help) override {
    add(name, value, help, {}, "");
  }
  void only_with(std::string_view other, const std::vector<std::string_view>& values) override {
    other_ = other;
    needed_.assign(values.begin(), values.end());
  }

  std::vector<OptionInfo> infos;

 private:
  void add(std::string_view name, OptionValue value, std::string_view help, std::vector<std::string> allowed,
           std::string range) {
    infos.push_back({std::string(name), std::move(value), std::string(help), std::move(allowed), std::move(range),
                     std::exchange(other_, {}), std::exchange(needed_, {})});
  }

  std::string other_;
  std::vector<std::string> needed_;
};

// Writes to the option of one name. An option is assigned only after its text has passed every check.
class Setter final : public OptionVisitor {
 public:
  Setter(std::string_view where, std::string_view name, std::string_view text)
      : where_(where), name_(name), text_(text) {}

  void flag(std::string_view name, bool& value, std::string_view) override {
    if (!is_wanted(name)) return;
    check(text_ == "true" || text_ == "false", where_, "{} must be true or false, got '{}'", name_, text_);
    value = text_ == "true";
  }
  void integer(std::string_view name, std::int64_t& value, std::string_view, std::int64_t minimum,
               std::int64_t maximum) override {
    if (!is_wanted(name)) return;
    const auto number = parsed<std::int64_t>("an integer");
    check(minimum <= number && number <= maximum, where_, "{} must be {} to {}, got '{}'", name_, minimum, maximum,
          text_);
    value = number;
  }
  void real(std::string_view name, double& value, std::string_view, RangeEnd minimum, RangeEnd maximum) override {
    if (!is_wanted(name)) return;
    const auto number = parsed<double>("a finite number");
    // NaN and infinities parse as numbers but are outside any range.
    check(std::numeric_limits<double>::lowest() <= number && number <= std::numeric_limits<double>::max(), where_,
          "{} must be a finite number, got '{}'", name_, text_);
    check(holds(minimum, number, maximum), where_, "{} must be {}, got '{}'", name_, range_text(minimum, maximum),
          text_);
    value = number;
  }
  void choice(std::string_view name, std::string& value, const std::vector<std::string_view>& allowed,
              std::string_view) override {
    if (!is_wanted(name)) return;
    check(std::find(allowed.begin(), allowed.end(), text_) != allowed.end(), where_, "{} must be one of {}; got '{}'{}",
          name_, joined({allowed.begin(), allowed.end()}), text_,
          did_you_mean(text_, {allowed.begin(), allowed.end()}));
    value = text_;
  }
  void text(std::string_view name, std::string& value, std::string_view) override {
    if (is_wanted(name)) value = text_;
  }

  bool found() const { return found_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  bool is_wanted(std::string_view name) {
    names_.emplace_back(name);
    const bool wanted = name == name_;
    found_ = found_ || wanted;
    return wanted;
  }

  template <class Number>
  Number parsed(std::string_view kind) const {
    Number number{};
    const char* const end = text_.data() + text_.size();
    const auto result = std::from_chars(text_.data(), end, number);
    check(result.ec != std::errc::result_out_of_range, where_, "{} = '{}' is out of range", name_, text_);
    check(result.ec == std::errc() && result.ptr == end, where_, "{} must be {}, got '{}'", name_, kind, text_);
    return number;
  }

  std::string_view where_;
  std::string_view name_;
  std::string_view text_;
  bool found_ = false;
  std::vector<std::string> names_;
};

// Insertions, deletions, substitutions and swaps of neighbours that turn one string into the other.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before_last(to.size() + 1);
  std::vector<std::size_t> last(to.size() + 1);
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t substituted = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[to.size()];
}

}  // namespace

std::string OptionInfo::help_with_range() const {
  if (!allowed.empty()) return formatted("{} ({})", help, joined(allowed, "|"));
  return range.empty() ? help : formatted("{} ({})", help, range);
}

std::vector<OptionInfo> list_options(Options& options) {
  Lister lister;
  options.visit(lister);
  return std::move(lister.infos);
}

void set_option(Options& options, std::string_view where, std::string_view name, std::string_view text) {
  Setter setter(where, name, text);
  options.visit(setter);
  if (setter.found()) return;
  check(!setter.names().empty(), where, "unknown option '{}': there are no options here", name);
  fail(where, "unknown option '{}'{}", name, did_you_mean_or_known(name, setter.names()));
}

void check_values(const Options& options, std::string_view where) {
  const std::unique_ptr<Options> copy = options.clone();
  const std::vector<OptionInfo> infos = list_options(*copy), usual = list_options(*options.defaults());
  for (std::size_t n = 0; n < infos.size(); ++n) {
    const OptionInfo& info = infos[n];
    set_option(*copy, where, info.name, to_text(info.value));
    if (info.other.empty() || info.value == usual[n].value) continue;
    const auto other = std::ranges::find(infos, info.other, &OptionInfo::name);
    const std::string value = to_text(other->value);
    check(std::ranges::count(info.needed, value) > 0, where, "{} = {} has no effect with {} = {}; it is for {} = {}",
          info.name, to_text(info.value), info.other, value, info.other, joined(info.needed, " or "));
  }
}

std::string to_text(const OptionValue& value) {
  return std::visit([](const auto& held) { return formatted("{}", held); }, value);
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr std::size_t most_edits = 3;  // and at most a third of the name
  std::size_t best_distance = std::min(most_edits, std::max<std::size_t>(1, name.size() / 3)) + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    // A name may come from a file and be of any length: comparing lengths is enough in most cases.
    const std::size_t longer = std::max(name.size(), candidate.size());
    if (longer - std::min(name.size(), candidate.size()) >= best_distance) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string near = nearest_name(name, candidates);
  return near.empty() ? "" : formatted("; did you mean '{}'?", near);
}

std::string did_you_mean_or_known(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string hint = did_you_mean(name, candidates);
  return hint.empty() ? "; known are " + joined(candidates) : hint;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> texts;
  std::size_t begin = 0, depth = 0;
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const char c = n < text.size() ? text[n] : separator;
    if (c == '[') ++depth;
    if (c == ']' && depth > 0) --depth;
    if (n < text.size() && (c != separator || depth > 0)) continue;
    texts.push_back(text.substr(begin, n - begin));
    begin = n + 1;
  }
  return texts;
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += formatted("{}{}", i > 0 ? separator : "", parts[i]);
  return text;
}

std::string name_from_stem(std::string_view stem) {
  std::string name(stem);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace tally

#include "tasks/command_line/grid.hpp"

#include <algorithm>
#include <charconv>

#include "tasks/command_line/command.hpp"
#include "tasks/runs/option_hint.hpp"

namespace tally {

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::vector<std::string> split_text(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::vector<GridDimension> parse_grid(const std::vector<std::string>& texts, std::string_view option) {
  std::vector<GridDimension> dimensions;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw UsageError(formatted("[usage] {} takes key=value,value, not '{}'", option, text));
    }
    GridDimension dimension{option_spelling(text.substr(0, equals)), split_text(text.substr(equals + 1), ',')};
    const bool twice = std::any_of(dimensions.begin(), dimensions.end(),
                                   [&](const GridDimension& other) { return other.key == dimension.key; });
    if (twice) throw UsageError(formatted("[usage] {} {} is there twice", option, dimension.key));
    dimensions.push_back(std::move(dimension));
  }
  return dimensions;
}

std::vector<Settings> combinations(const std::vector<GridDimension>& dimensions) {
  std::vector<Settings> all(1);
  for (const GridDimension& dimension : dimensions) {
    std::vector<Settings> longer;
    for (const Settings& settings : all) {
      for (const std::string& value : dimension.values) {
        longer.push_back(settings);
        longer.back().emplace_back(dimension.key, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace tally

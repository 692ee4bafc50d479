#include "tasks/runner/grid.hpp"

#include <algorithm>

#include "tasks/runner/command.hpp"

namespace tally {

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) text += concat(text.empty() ? "" : separator, part);
  return text;
}

std::vector<std::string> split_text(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<GridDimension> parse_grid(const std::vector<std::string>& texts) {
  std::vector<GridDimension> dimensions;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw UsageError(concat("[usage] --set takes key=value,value, not '", text, "'"));
    }
    GridDimension dimension{text.substr(0, equals), split_text(text.substr(equals + 1), ',')};
    const bool twice = std::any_of(dimensions.begin(), dimensions.end(),
                                   [&](const GridDimension& other) { return other.key == dimension.key; });
    if (twice) throw UsageError(concat("[usage] --set ", dimension.key, " is there twice"));
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

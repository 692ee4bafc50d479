// --set key=value,value: every combination of settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tally {

// The whole number that the text is; nothing for another text.
std::optional<std::int64_t> whole_number(std::string_view text);
// The parts of "a,b" between the separators.
std::vector<std::string> split_text(const std::string& text, char separator);

struct GridDimension {
  std::string key;
  std::vector<std::string> values;
};

// From the texts of --set (or another option), "model.layers=1,2". Throws UsageError for one without a key, or a key
// that is there twice.
std::vector<GridDimension> parse_grid(const std::vector<std::string>& texts, std::string_view option = "--set");

// Every combination of one value of each, keys in the order given, the last one changing first. One empty combination
// without dimensions.
using Settings = std::vector<std::pair<std::string, std::string>>;
std::vector<Settings> combinations(const std::vector<GridDimension>& dimensions);

}  // namespace tally

// --set key=value,value: every combination of settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tally {

// The text as a whole number, or nothing if it is not one.
std::optional<std::int64_t> whole_number(std::string_view text);
// The parts of "a,b" between the separators.
std::vector<std::string> split_text(const std::string& text, char separator);

struct GridDimension {
  std::string key;
  std::vector<std::string> values;
};

// Parses the texts of --set (or another option), "model.layers=1,2". Throws UsageError for a missing or repeated key.
std::vector<GridDimension> parse_grid(const std::vector<std::string>& texts, std::string_view option = "--set");

// Every combination of one value per key. Keys keep the given order, and the last one changes first. Without dimensions
// there is one empty combination.
using Settings = std::vector<std::pair<std::string, std::string>>;
std::vector<Settings> combinations(const std::vector<GridDimension>& dimensions);

}  // namespace tally

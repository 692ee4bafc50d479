// The configuration of a run with settings in a line, such as "task.length=16 model.width=8". Later ones replace
// earlier ones.
#pragma once

#include <sstream>
#include <string>

#include "tasks/runs/config.hpp"

namespace tally::testing {

inline RunConfig with(RunConfig config, const std::string& settings) {
  std::istringstream words(settings);
  for (std::string word; words >> word;) {
    const std::size_t equal = word.find('=');
    config.set(word.substr(0, equal), word.substr(equal + 1));
  }
  return config;
}

// With the preset quick.
inline RunConfig configured(const std::string& task, const std::string& encoding, const std::string& settings = "") {
  return with(RunConfig::make(task, encoding, "quick"), settings);
}

}  // namespace tally::testing

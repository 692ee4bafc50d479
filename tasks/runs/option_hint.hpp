// Finds the option that an unknown name probably means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tally {

// "optimizer.lr" -> "optimiser.lr": both spellings name the same option.
std::string option_spelling(std::string_view name);

// Returns the option of `known` that `name` probably means, both without leading dashes, or an empty string. Compares
// the last part of dotted names, then the names of nanoGPT, LitGPT, Hugging Face and PyTorch, then edit distances.
std::string meant_option(std::string_view name, const std::vector<std::string>& known);

}  // namespace tally

// The token that ends a document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tasks/text/tokenizer.hpp"

namespace tally {

// By a known name (TokenizerParts::end_of_text()), or else the eos_token of the tokenizer_config.json next to the
// tokenizer's file, or in its folder, if that is a special token. A chat model's eos_token ends a turn and not a
// document, so known names come first. Nothing if neither exists.
std::optional<std::int32_t> find_end_token(const TokenizerParts& parts, const std::string& tokenizer_path);

// The special token of this name, or the token with this id; empty: find_end_token(). Throws Error naming the
// tokenizer's special tokens.
std::int32_t end_token(const TokenizerParts& parts, const std::string& name, const std::string& tokenizer_path);

}  // namespace tally

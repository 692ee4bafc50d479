// The tokenizer of a task on text, and its special tokens, which represent no bytes of a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

class Tokenizer;

class SpecialTokens {
 public:
  virtual ~SpecialTokens() = default;
  // Ids of a text. Only the names in `allowed` become special tokens; everything else is text. Throws Error for a name
  // that is not a special token.
  virtual std::vector<std::int32_t> encode_allowing(std::string_view text,
                                                    std::span<const std::string> allowed) const = 0;
  // Null if only the ids of the tokens are known.
  virtual const Tokenizer* tokenizer() const = 0;
};

}  // namespace tally

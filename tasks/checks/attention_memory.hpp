// Whether attention with these encodings needs memory linear in the length: counted, not told by them, since a sum may
// cost what none of its parts does (a policy that reads the score alone, beside keys that tokens change).
#pragma once

#include <string>
#include <vector>

#include "nn/encoding/choice.hpp"

namespace tally {

// Of one assignment of a choice, on the default device, with the choice's options: a layer of 4 heads of width 64,
// forward and backward, in f32, over one text of attention_memory_length tokens.
struct AttentionMemory {
  std::string form;      // tiled or composed (attention_form)
  bool squares = false;  // grows with the square of the length: by more than a number for every fourth pair
  double bytes = 0;      // of all tensors when they are most
};
inline constexpr std::int64_t attention_memory_length = 16384;

// Throws Error for what the model cannot have.
AttentionMemory attention_memory(const EncodingChoice& choice, const EncodingChoice::Assignment& assignment);

// A line for each sum of a choice whose memory grows with the square of the length, saying how it is computed.
std::vector<std::string> square_memory_notes(const EncodingChoice& choice);

}  // namespace tally

// Checks whether attention with the chosen encodings needs memory linear in the length. The memory is counted, not
// declared by the encodings. A combination may cost more than any of its parts: for example a policy that reads only
// the score, combined with keys that tokens change.
#pragma once

#include <string>
#include <vector>

#include "nn/encoding/choice.hpp"

namespace tally {

// Memory of one assignment of a choice, on the default device, with the choice's options. Measured on one layer of 4
// heads of width 64, forward and backward, in f32, over one text of attention_memory_length tokens.
struct AttentionMemory {
  std::string form;      // tiled or composed (attention_form)
  bool squares = false;  // grows with the square of the length: by more than a number for every fourth pair
  double bytes = 0;      // peak bytes of all tensors
};
inline constexpr std::int64_t attention_memory_length = 16384;

// Throws Error if the model cannot have this assignment.
AttentionMemory attention_memory(const EncodingChoice& choice, const EncodingChoice::Assignment& assignment);

// One line for each combination in a choice whose memory grows with the square of the length. The line gives the
// attention form.
std::vector<std::string> square_memory_notes(const EncodingChoice& choice);

}  // namespace tally

// How much of the logits of a batch is there at once.
#pragma once

#include <cstdint>

namespace tally {

// Logits of more bytes than these are formed strip by strip (SequenceModel::loss).
inline constexpr std::int64_t most_logit_bytes = std::int64_t{64} << 20;

}  // namespace tally

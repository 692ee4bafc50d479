// The limit on the logits of a batch in memory.
#pragma once

#include <cstdint>

namespace tally {

// Logits larger than this are computed strip by strip (SequenceModel::loss).
inline constexpr std::int64_t most_logit_bytes = std::int64_t{64} << 20;

}  // namespace tally

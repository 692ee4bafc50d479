// Eviction from the KV cache during generation. With a window or chunks a layer keeps the sink tokens and all keys that
// the next query or a later one may attend to. Eviction shifts the indices of the remaining keys and of the queries, by
// a whole number of chunks. The mask and the distances to keys after the gap stay the same; distances to sink tokens
// change.
#pragma once

#include <cstdint>
#include <string_view>

#include "nn/encoding/encoding.hpp"

namespace tally {

// The suffix that AttentionInput::keep_keys appends to a name.
inline constexpr std::string_view kept_beside_keys = ", beside keys";

// Number of keys after the sink tokens that are masked for all queries from index `next` on, in whole chunks.
std::int64_t num_evicted(const AttentionMask& mask, std::int64_t next);

// Adapts score modifications and biases to `gone` evicted keys after the sink tokens. Shapes that an encoding made for
// all keys lose the evicted ones. Shapes by distance still use the true distances to sink tokens.
void drop_evicted(Score& score, const AttentionInput& in, std::int64_t gone);

// Evicts keys that no later query attends to, with everything stored next to them, several at a time. keys: the current
// number of keys. With sink tokens and a score modification that reads distances no key is evicted.
void evict_masked(const Score& score, const AttentionInput& in, std::int64_t keys);

}  // namespace tally

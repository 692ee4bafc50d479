// Grouped queries (arXiv 2305.13245): H heads of queries share G heads of keys and values, and G divides H. Query head
// h uses key head floor(h G/H).
#pragma once

#include "core/attention/call.hpp"

namespace tally {

inline std::int64_t key_heads(const AttentionCall& call) { return call.k.shape[1]; }
// Number of query heads that share a key head.
inline std::int64_t gqa_group_size(const AttentionCall& call) { return call.heads() / key_heads(call); }

}  // namespace tally

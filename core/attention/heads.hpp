// Grouped queries (arXiv 2305.13245): H heads of queries share G heads of keys and values, G divides H; the query head
// h has those of key head floor(h G/H).
#pragma once

#include "core/attention/call.hpp"

namespace tally {

inline std::int64_t key_heads(const AttentionCall& call) { return call.k.shape[1]; }
// How many heads of queries have the same keys.
inline std::int64_t heads_of_key(const AttentionCall& call) { return call.heads() / key_heads(call); }

}  // namespace tally

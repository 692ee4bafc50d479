// Which keys a layer still has while a text is generated: where queries see a window or a chunk, the first ones that
// all of them see and those that the next query or a later one may see. Without the gone ones the keys that are left
// have other numbers, which only differ from the old ones by a whole number of chunks; so do those of the queries.
// Distances to the keys behind the gap, and what is seen, stay as they were; those to the first keys do not.
#pragma once

#include <cstdint>
#include <string_view>

#include "nn/encoding.hpp"

namespace tally {

// What AttentionInput::keep_keys puts at the end of a name.
inline constexpr std::string_view kept_beside_keys = ", beside keys";

// Keys behind the first ones that no query from index `next` on sees, in whole chunks.
std::int64_t gone_keys(const Visible& visible, std::int64_t next);

// What joins the scores of a product from which so many keys behind the first ones are gone: shapes that an encoding
// made for all keys are without these, and those by distance find the first keys where they were.
void leave_out_gone(Score& score, const AttentionInput& in, std::int64_t gone);

// Lets go of what the cache has beside keys that no later query sees, a few at a time; `keys` of them are there now.
// Under a policy that reads the distance of a pair all stay beside first keys.
void forget_unseen(const Score& score, const AttentionInput& in, std::int64_t keys);

}  // namespace tally

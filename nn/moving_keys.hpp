// Scores with keys that every later token changes: s_ij = q_i.k_j^(i) / sqrt(d), where k_j^(i) is key j as the tokens
// j+1 .. i have left it (PaTH multiplies it with their matrices, Wall lowers its channels). Tokens go in blocks of C: a
// key is moved through a whole block at once, and meets the queries of the next one there; outside the composed
// form it is the query that walks to the left, from block to block (autograd/score.hpp).
#pragma once

#include <string_view>

#include "nn/encoding.hpp"

namespace tally {

// rows [B, h, T, w] -> [B, h, N, C, w] of blocks of C = min(T, longest) tokens, 0 behind the last token.
Tensor in_blocks(const Tensor& rows, std::int64_t longest);
// Whether a token comes no later than another one of its block, or strictly earlier: bool [C, C], row by row.
Tensor earlier_in_block(std::int64_t count, const Tensor& like, bool strictly);
// x [.., C, C] with 0 where the column comes later, or is the row itself too.
Tensor lower(const Tensor& x, bool strictly = false);

// What the tokens of each block say, N blocks of C.
struct MovedInBlocks {
  Tensor own;  // [B, H, N, C, C]: products with the keys of their block, not scaled; nothing above the diagonal counts
  Tensor queries;  // [B, H, N, C, d]: as keys from before the block meet them, as these stand at its start
  Tensor keys;     // [B, h, N, C, d]: as they leave their block; h: H, or the G heads of keys
  // A block changes keys k that come from before it: k - (k taken^T) read, or k factor.
  Tensor read, taken;  // [B, h, N, C, d], or
  Tensor factor;       // [B, h, N, d]
};

// Tokens of a block of a MovedProduct.
inline constexpr std::int64_t longest_in_tiles = moved_block;

// All products, not scaled: [B, H, N C, N C]; what is above the diagonal does not count.
Tensor products_of(const MovedInBlocks& blocks);

// Joins these products to the score under `name`, which no other part of it has. Where in.replaces_product is set, they
// take the place of q.k, of q and k as rotated: blocks must be of min(T, longest_in_tiles) tokens, and memory is linear
// in the length. Else, as for a second encoding that does so, what they differ by from scaled q.k joins as a bias:
// costs B H T² numbers, and of keys as they stood at each block B h T² d / (2 C). While a text is generated each step
// costs T d: the keys are kept as they stand.
void join_moved(const AttentionInput& in, std::string_view name, const MovedInBlocks& blocks, Score& score);

}  // namespace tally

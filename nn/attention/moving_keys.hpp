// Scores with keys that every later token changes: s_ij = q_i.k_j^(i) / sqrt(d), where k_j^(i) is key j after the
// changes by the tokens j+1 .. i (PaTH multiplies it with their matrices, Wall lowers its channels). Tokens are
// processed in blocks of C. A key is moved through a whole block at once and is then multiplied with the queries of the
// next block.
#pragma once

#include <string_view>

#include "nn/encoding/encoding.hpp"

namespace tally {

// rows [B, h, T, w] -> [B, h, N, C, w] in blocks of C = min(T, longest) tokens, padded with 0 after the last token.
Tensor in_blocks(const Tensor& rows, std::int64_t longest);

// The products, queries and changes of N blocks of C tokens.
struct MovedInBlocks {
  Tensor own;      // [B, H, N, C, C]: products with the keys of their block, not scaled; not used above the diagonal
  Tensor queries;  // [B, H, N, C, d]: for keys before the block, in the keys' state at its start
  Tensor keys;     // [B, h, N, C, d]: in their state after their block; h: H, or the G heads of keys
  // A block changes all keys k before it: k - (k taken^T) read, or k factor.
  Tensor read, taken;  // [B, h, N, C, d], or
  Tensor factor;       // [B, h, N, d]
};

// Number of tokens in a block; a shorter text is one block.
inline constexpr std::int64_t longest_block = 64;

// All products, not scaled: [B, H, N C, N C]; not used above the diagonal.
Tensor products_of(const MovedInBlocks& blocks);

// Adds the difference of these products from scaled q.k, with q and k as rotated, to the score: [B, H, T, T] numbers.
// Backward recomputes it, some sequences at a time. In generation the cache holds the moved keys under the unique
// `name`, and a step costs T d.
void join_moved(const AttentionInput& in, std::string_view name, const MovedInBlocks& blocks, Score& score);

}  // namespace tally

// Scores with keys that every later token changes: s_ij = q_i.k_j^(i) / sqrt(d), where k_j^(i) is key j as the tokens
// j+1 .. i have left it (PaTH multiplies it with their matrices, Wall lowers its channels). Tokens go in blocks of C: a
// key is moved through a whole block at once, and meets the queries of the next one there.
#pragma once

#include <functional>
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
  // Keys [B, h, n, d] from before block number n as they leave it.
  std::function<Tensor(const Tensor& keys, std::int64_t n)> move;
};

// What this does to the scores, s_ij - q_i.k_j / sqrt(d) of q and k as rotated: joins them, in whatever sum. Costs
// B H T² numbers, and of keys as they stood at each block B h T² d / (2 C). While a text is generated each step costs
// T d: the keys are kept as they stand.
Dense moved_scores(const AttentionInput& in, std::string_view name, const MovedInBlocks& blocks);

}  // namespace tally

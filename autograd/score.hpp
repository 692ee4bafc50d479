// What joins the attention scores s_ij = q_i.k_j / sqrt(d): at most one scan and any number of biases, as tensors with
// gradients; and how logits become weights. Attention knows these shapes and never an encoding.
//
// B batch, H heads of queries, G of keys (core/attention/heads.hpp), T tokens, P largest position, N knots;
// query i, key j <= i. Generated rows come alone: T are the last queries, distances and positions reach over all keys.
#pragma once

#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "core/attention/call.hpp"
#include "core/attention/policy.hpp"
#include "core/rounded.hpp"
#include "core/tensor.hpp"

namespace tally {

// Contextual positions: p_ij = sum_{k=j..i} g_ik with g = sigmoid(s), or sigmoid(r.G / sqrt(d)) of operands of
// their own.  CoPE, arXiv 2405.18719, equations 3 and 4. The same operands make the p.other of a policy.
struct Gates {
  Tensor query;  // r [B, H, T, d], undefined: gates from the score itself
  Tensor key;    // G [B, G, keys, d]
};
// What a policy makes of each pair (core/attention/pair.hpp; autograd/pair.hpp has how to write one).
struct Pair {
  const PairPolicy* policy;
  Tensor rows = {};   // [B, H, T, needs.rows]
  Tensor heads = {};  // [H, needs.heads]
  Gates other = {};   // of p.other; undefined: the score itself
  Tensor table = {};  // [B, H, T, P+1], any P, where needs.table asks for it, or with needs.knots [B, H, T, 2 N]
  Tensor knots = {};  // t [N], ascending; no gradient flows to them
  // l [B, H, T, T] from the scores and p.sum, scores being scale times q.k, by ordinary operations in the place of the
  // policy's logit. Such a policy is not compiled: its attention is materialised.
  std::function<Tensor(const Tensor& s, const Tensor& sum, double scale)> materialised_logit = {};
};

// z_i[n] = scale r_i.e_n [B, H, T, N] of queries r [B, H, T, w] and keys e [1 or B, 1, G or H, N, w].
Tensor products_of_rows(const Tensor& query, const Tensor& key, double scale = 1);

// Whether tiled attention of the device has the policy; the composed form has any.
bool is_compiled(const PairPolicy& policy, Device device);

// Policies that several encodings may use; the files of autograd/pairs.

// l_ij += z_i at position min(p_ij, P), linearly interpolated; z [B, H, T, P+1].  CoPE, arXiv 2405.18719, equation 5.
Pair contextual_table(const Tensor& z, const Gates& gates = {});
// l_ij += v_i[n] + r_i[n] (p_ij - t_n) with the last knot t_n before p_ij, or the first; table [B, H, T, 2 N]: v_i[0],
// r_i[0], v_i[1], ...; knots t [N], ascending
Pair contextual_segments(const Tensor& table, const Tensor& knots, const Gates& gates = {});
// A hidden layer of a number x >= 0 as what contextual_segments takes: where sum_n u_n relu(w_n x + b_n) has its kinks,
// and values and slopes of each unit between them, so that u times them is the table of the sum.
struct HiddenSegments {
  Tensor knots;  // [N + 1], the first 0
  Tensor units;  // [N, 2 (N + 1)]; gradients flow to w and b
};
HiddenSegments hidden_segments(const Tensor& weight, const Tensor& bias);  // w, b [N]
// l_ij += m_h p_ij, m [H]
Pair contextual_slope(const Tensor& slope, const Gates& gates = {});
// l_ij -= sum_{k=j..i-1} softplus(l_ik) with the biases in l, and no key sees itself; with attend_current sums end at i
// and it does. With the normaliser exp, e^l of these:  A_ij = exp(l_ij - sum_{k=j..i-1} softplus(l_ik)),
// 1 - sum_j A_ij = exp(-sum_{k<i} softplus(l_ik)).  arXiv 2410.17980.
Pair stick_breaking(bool attend_current = false);

// Biases: l_ij gets what stands beside the struct.

// bias_h[i-j]
struct Toeplitz {
  Tensor bias;  // [H, distances]
};
// row_i + column_j, formed in double: both may be large while the sum is small (running sums)
struct RowColumn {
  Tensor row;     // [B, H, T] f64; may be undefined
  Tensor column;  // [B, H, keys] f64; may be undefined
};
// z_i[i-j]
struct RowToeplitz {
  Tensor z;          // [B, H, T, W]
  bool cap = false;  // distances >= W read row W-1; else they get nothing
};
// r_i.e_{i-j} / sqrt(d), with the d of q: RowToeplitz of products, which tiles on the CPU make where they are read.
struct ToeplitzProduct {
  Tensor query;      // r [B, H, T, w]
  Tensor key;        // e [1 or B, 1, G or H, W, w]
  bool cap = false;  // as above

  RowToeplitz written_out(double scale) const;  // z_i[n] = scale r_i.e_n
};
// r_i.G_j / sqrt(d), with the d of q: a product beside that of q and k, whose keys are by key head like k
struct Product {
  Tensor query;  // r [B, H, T, w]
  Tensor key;    // G [B, G, keys, w]
};
// bias_ij; costs T x T memory
struct Dense {
  Tensor bias;            // [B or 1, H or 1, T, keys]
  bool of_score = false;  // what becomes of the score itself: score_of multiplies it with Score::factor
};
using Bias = std::variant<Toeplitz, RowColumn, RowToeplitz, ToeplitzProduct, Product, Dense>;

// Tokens of a block of MovedProduct; a shorter text is one block.
inline constexpr std::int64_t moved_block = 64;

// In the place of q.k: products with keys that every token after them changes, by blocks of C = min(T, moved_block)
// tokens. Within a block they are given; a query goes on to the left block by block, and each block n that it leaves
// behind changes it:
//   s_ij = scale own_i[j mod C] in the same block, else scale q.keys_j with the query as it meets the block of j:
//   as given in the block before its own one, then  q <- q - (q read_n^T) taken_n  or  q <- q factor_n
// As many queries as keys; gates that see the score see q.k of the operands. The products of a part of the rows are
// made by ordinary operations, one part after the other, and made again for backward.
struct MovedProduct {
  Tensor queries;      // [B, H, T, d], as keys from before their block meet them at its start
  Tensor keys;         // [B, G, T, d], as they leave their block; G those of k, or H
  Tensor own;          // [B, H, T, C]; nothing behind the query counts
  Tensor read, taken;  // [B, G, T, d] with the G of these keys, or
  Tensor factor;       // [B, G, N, d], N = ceil(T / C)
};

// How the logits of a row become its weights: a_ij = n(l_ij) / (z0 + sum_j m(l_ij)) over the keys j that i sees; 0 in a
// row that sees none.
struct Normaliser {
  using Kind = AttentionNormaliser::Kind;  // n, m and z0 of each
  Kind kind = Kind::softmax;
  Tensor sink = {};   // c [H]: z0 = e^c of a softmax; undefined: 0
  double offset = 0;  // of sigmoid
  // What a row's weights leave over attends to r [B, H, T, e]: o_i += (1 - sum_j a_ij) r_i; undefined: nothing
  Tensor rest = {};

  bool is_softmax() const { return kind == Kind::softmax && !sink.defined(); }
};

struct Score {
  std::optional<MovedProduct> moved;
  std::optional<Pair> scan;
  std::vector<Pair> more_scans;  // of a combination, whose attention is materialised then
  std::vector<Bias> biases;
  Normaliser normaliser;
  double factor = 1;  // of q.k, beside 1/sqrt(d)
  // [B or 1, H, T]: l_ij with all that joins it is multiplied by that of query i. Gates see the score without it, and
  // of policies those alone that add the entry of a table go with it. Undefined: 1.
  Tensor row_factor = {};

  // Adds a policy. Tiles take one; several are applied one after the other in the composed form: those that read the
  // score of q and k alone, those that add to it, and after all biases those that read the logits with them.
  void set_scan(Pair value);
  std::vector<const Pair*> scans() const;
  // Throws Error when there is another than the softmax already.
  void set_normaliser(Normaliser value);
  // Gives these operands to gates that else see the score.
  void keep_gates(const Tensor& q, const Tensor& k);
  // Whether a product must not be part of the scores: its policy reads them otherwise than to add to them.
  bool takes_score_alone() const;
  // Whether a factor of whole logits meets a policy with a logit of its own.
  bool multiplies_pairs() const;
  // Whether a product is part of a score that a policy reads otherwise than to add to it.
  bool changes_score() const;
  // Whether tiled attention of this device has the policy, and all that it meets.
  bool tiled_on(Device device) const;
  // Throws Error where a policy wants another rule for the weights, or where tiles do not have what meets.
  void check_policy() const;
  void check_tiled() const;
};

struct AttentionOperands {
  Tensor q, k, v;  // [B, H, T, d], [B, G, keys, d], [B, G, keys, e] of the product, rotated where the encoding rotates
  double scale;    // 1/sqrt(d)
  Visible visible = {};
  // Tiled: of the weights, as dropout(weights, rate, stream) would be.
  double dropout = 0;
  RandomStream dropout_stream = {};
  // About as many of a MovedProduct's products, [B, H, rows, keys], are in memory at a time.
  std::int64_t products_at_once = std::int64_t{1} << 24;
  ReadBy readers = ReadBy::anyone;  // of o; what the CPU's tiles write for products is bf16
};

// The same logits without a row_factor, which goes into q and into what joins the scores: biases by distance and of
// columns cost T x T memory then.
void multiply_rows(AttentionOperands& in, Score& score);

// o [B, H, T, e]: causal attention with these shapes in tiles, in memory linear in the length beside the shapes' own
// tensors (but for one number per row and 128 keys with a scan; on a GPU per row and 32 keys); tiles of pairs that are
// not visible cost nothing. The queries are the last T of the keys' tokens. Throws Error naming the operand whose shape
// does not fit. Written out in ordinary operations, every intermediate in memory: nn/composed.hpp.
Tensor tiled_attention(const AttentionOperands& in, const Score& score);

}  // namespace tally

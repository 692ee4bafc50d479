// Score modifications, biases and normalisers of attention, as tensors with gradients. They turn the scores s_ij =
// q_i.k_j / sqrt(d) into logits and logits into weights. Attention depends on these shapes, never on an encoding.
//
// B batch, H heads of queries, G of keys (core/attention/problem.hpp), T tokens, P largest position, N knots;
// query i, key j <= i. In generation T is the number of new queries, the last ones; distances and positions still
// extend over all keys.
#pragma once

#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "autograd/autocast.hpp"
#include "core/attention/problem.hpp"
#include "core/attention/score_mod_traits.hpp"
#include "core/tensor.hpp"

namespace tally {

// Contextual positions: p_ij = sum_{k=j..i} g_ik with g = sigmoid(s), or sigmoid(r.G / sqrt(d)) with separate operands.
// CoPE, arXiv 2405.18719, equations 3 and 4. The same operands make the p.gate_logit of a score modification.
struct Gates {
  Tensor query;  // r [B, H, T, d], undefined: gates from the score itself
  Tensor key;    // G [B, G, keys, d]
};
// A score modification (core/attention/score_mod.hpp; how to write one: autograd/score_mod.hpp) and its operands.
struct AppliedScoreMod {
  const ScoreMod* mod;
  Tensor rows = {};   // scalars of the queries [B, H, T, rows]
  Tensor heads = {};  // scalars of the heads [H, heads]
  Gates gates = {};   // operands of p.gate_logit; undefined: the score itself
  Tensor table = {};  // of p.entry: [B, H, T, P+1], any P, or with knots [B, H, T, 2 N]
  Tensor knots = {};  // t [N], ascending; no gradient flows to them
  // l [B, H, T, T] from the scores (scale times q.k) and p.sum, computed by ordinary operations instead of `mod`'s
  // logit. It is not compiled: its attention is materialised.
  std::function<Tensor(const Tensor& s, const Tensor& sum, double scale)> materialised_logit = {};
};

// [B, G, N, w] -> [B, H, N, w]: repeats each head of keys or values for every query head that shares it. Copies unless
// G = H.
Tensor repeat_kv(const Tensor& x, std::int64_t heads);

// z_i[n] = scale r_i.e_n [B, H, T, N] for queries r [B, H, T, w] and keys e [1 or B, 1, G or H, N, w].
Tensor products_of_rows(const Tensor& query, const Tensor& key, double scale = 1);

// Whether it is compiled for the device's fused attention; reference attention supports all.
bool is_compiled(const ScoreMod& mod, Device device);

// Score modifications that several encodings may use, from autograd/score_mods.

// l_ij += z_i at position min(p_ij, P), linearly interpolated; z [B, H, T, P+1].  CoPE, arXiv 2405.18719, equation 5.
AppliedScoreMod contextual_table(const Tensor& z, const Gates& gates = {});
// l_ij += v_i[n] + r_i[n] (p_ij - t_n) with the last knot t_n before p_ij, or the first; table [B, H, T, 2 N]: v_i[0],
// r_i[0], v_i[1], ...; knots t [N], ascending
AppliedScoreMod contextual_segments(const Tensor& table, const Tensor& knots, const Gates& gates = {});
// A hidden layer of a number x >= 0, sum_n u_n relu(w_n x + b_n), for contextual_segments: its kinks, and the values
// and slopes of each unit between them. u times `units` is the table of the sum.
struct HiddenSegments {
  Tensor knots;  // [N + 1], the first 0
  Tensor units;  // [N, 2 (N + 1)]; gradients flow to w and b
};
HiddenSegments hidden_segments(const Tensor& weight, const Tensor& bias);  // w, b [N]
// l_ij += m_h p_ij, m [H]
AppliedScoreMod contextual_slope(const Tensor& slope, const Gates& gates = {});
// l_ij -= sum_{k=j..i-1} softplus(l_ik), where l includes the biases, and a query's own key is masked. With
// attend_current it is not masked, and sums end at i. The softmax_rule is exp:  A_ij = exp(l_ij - sum_{k=j..i-1}
// softplus(l_ik)),  1 - sum_j A_ij = exp(-sum_{k<i} softplus(l_ik)).  arXiv 2410.17980.
AppliedScoreMod stick_breaking(bool attend_current = false);

// Biases: the formula before each struct is added to l_ij.

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
  bool cap = false;  // distances >= W: z_i[W-1] if cap, else 0
};
// r_i.e_{i-j} / sqrt(d), with the d of q: RowToeplitz with products as z, which the CPU's kernel computes itself.
struct ToeplitzProduct {
  Tensor query;      // r [B, H, T, w]
  Tensor key;        // e [1 or B, 1, G or H, W, w]
  bool cap = false;  // as above

  RowToeplitz materialised(double scale) const;  // z_i[n] = scale r_i.e_n
};
// r_i.G_j / sqrt(d), with the d of q: a second product in addition to q.k, whose keys have k's heads
struct Product {
  Tensor query;  // r [B, H, T, w]
  Tensor key;    // G [B, G, keys, w]
};
// bias_ij; costs T x T memory
struct Dense {
  Tensor bias;            // [B or 1, H or 1, T, keys]
  bool of_score = false;  // a change of the score itself: score_of multiplies it by Score::factor
};
using Bias = std::variant<Toeplitz, RowColumn, RowToeplitz, ToeplitzProduct, Product, Dense>;
// Throws Error naming the axes that a tensor of the bias must have, if their number is wrong.
void check_axes(const Bias& bias);

// Turns the logits of a row into weights. sink [H]; rest [B, H, T, e], the value of the leftover mass.
using SoftmaxRule = SoftmaxRuleOperands<Tensor>;

struct Score {
  std::optional<AppliedScoreMod> score_mod;
  std::vector<AppliedScoreMod> more_score_mods;  // of a combination, whose attention is then materialised
  std::vector<Bias> biases;
  SoftmaxRule softmax_rule;
  double factor = 1;  // multiplies q.k, in addition to 1/sqrt(d)
  // [B or 1, H, T]: multiplies all l_ij of query i, biases included. Gates read the score without it. In a combination
  // attention is materialised. Undefined: 1.
  Tensor row_factor = {};

  // Adds a score modification. Fused attention takes one; reference attention applies several, one after the other:
  // first those with logit(p), then those with bias(p), and after all biases those with logit_after_biases(p).
  void add_score_mod(AppliedScoreMod value);
  std::vector<const AppliedScoreMod*> score_mods() const;
  // Throws Error if a softmax_rule other than the softmax is already set.
  void set_softmax_rule(SoftmaxRule value);
  // Whether row_factor multiplies more than q.k.
  bool multiplies_pairs() const;
  // Whether a bias depends on the number of tokens between query and key.
  bool reads_distances() const;
  // Whether this device's fused attention supports the score modification and everything it is combined with.
  bool tiled_on(Device device) const;
};

struct AttentionOperands {
  Tensor q, k, v;  // [B, H, T, d], [B, G, keys, d], [B, G, keys, e] of the product, rotated where the encoding rotates
  double scale;    // 1/sqrt(d)
  AttentionMask mask = {};
  // Fused: drops weights as dropout(weights, rate, stream) would.
  double dropout = 0;
  RandomStream dropout_stream = {};
  OutputPrecision precision = OutputPrecision::full;  // of o
};

// Fused causal attention with these shapes: o [B, H, T, e]. In addition to the shapes' tensors it uses memory linear in
// the length, except for the running sums of a score modification: one number per row and 128 keys, on a GPU per row
// and 32 keys. Fully masked tiles cost nothing. The queries are the last T of the keys' tokens. Throws Error naming the
// operand whose shape does not fit. Reference attention, with every intermediate in memory: nn/attention/composed.hpp.
Tensor tiled_attention(const AttentionOperands& in, const Score& score);

}  // namespace tally

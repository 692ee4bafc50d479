// The tensor operands of fused attention, listed once for every struct with one member an operand: views and views of
// gradients (core/attention/call.hpp), or positions in a list of inputs (autograd/ops/attention_call.hpp). A new
// operand takes a line here, a line in for_each_operand, and the code that reads it.
//
// B batch, H heads of queries, G of keys (core/attention/heads.hpp), T queries, K keys, d, e widths of k, v.
#pragma once

namespace tally {

// The operands of a score modification (core/attention/score_mod.hpp).
template <class X>
struct ScoreModOperands {
  X gate_query{};  // [B,H,T,w], w of any width: p.other is scale gate_query_i . gate_key_j, or s
  X gate_key{};    // [B,G,K,w]
  X rows{};        // [B,H,T,traits.rows]
  X heads{};       // [H,traits.heads]
  X table{};       // [B,H,T,P+1], or [B,H,T,2 N] for N knots
  X knots{};       // [N], ascending, dense; takes no gradient
};

// The operands of AttentionDistance: a key vector for each of W <= K distances.
template <class X>
struct DistanceOperands {
  X query{};  // [B,H,T,w], w of any width
  X key{};    // [B,G,W,w]
};

// The operands of the softmax_rule, which turns logits into weights.
template <class X>
struct NormaliserOperands {
  X sink{};  // c [H] of softmax; null: none
  X rest{};  // r [B,H,T,e]: o_i += (1 - sum_j a_ij) r_i; null: the leftover mass is dropped
};

// The operands of a bias; AttentionBias::Kind has their shapes.
template <class X>
struct BiasOperands {
  X values{}, column{};
};

template <class X>
struct AttentionOperandsOf {
  X q{}, k{}, v{};  // [B,H,T,d], [B,G,K,d], [B,G,K,e]
  ScoreModOperands<X> scan;
  DistanceOperands<X> distance;
  NormaliserOperands<X> softmax_rule;
};

// f(the member of each...) for every operand except those of biases. All: AttentionOperandsOf, or a struct with the
// same member names.
template <class F, class... All>
void for_each_operand(const F& f, All&... all) {
  f(all.q...);
  f(all.k...);
  f(all.v...);
  f(all.scan.gate_query...);
  f(all.scan.gate_key...);
  f(all.scan.rows...);
  f(all.scan.heads...);
  f(all.scan.table...);
  f(all.scan.knots...);
  f(all.distance.query...);
  f(all.distance.key...);
  f(all.softmax_rule.sink...);
  f(all.softmax_rule.rest...);
}

// Likewise for the operands of queries, [B,H,T,width].
template <class F, class... All>
void for_each_row_operand(const F& f, All&... all) {
  f(all.q...);
  f(all.scan.gate_query...);
  f(all.scan.rows...);
  f(all.scan.table...);
  f(all.distance.query...);
  f(all.softmax_rule.rest...);
}

// Likewise for the operands of keys, [B,G,K,width], and distance.key, which has fewer rows and is summed like them.
template <class F, class... All>
void for_each_key_operand(const F& f, All&... all) {
  f(all.k...);
  f(all.v...);
  f(all.scan.gate_key...);
  f(all.distance.key...);
}

}  // namespace tally

// The tensors that a call of tiled attention may be given, once for all who hold something of each: its view and the
// view of its gradient (core/attention/call.hpp), or where it stands in a list of inputs
// (autograd/ops/attention_call.hpp). A new one is a line here, one in for_each_operand, and where it is read.
//
// B batch, H heads of queries, G of keys (core/attention/heads.hpp), T queries, K keys, d, e widths of k, v.
#pragma once

namespace tally {

// Of a policy (core/attention/pair.hpp).
template <class X>
struct PolicyOperands {
  X gate_query{};  // [B,H,T,w], w of any width: p.other is scale gate_query_i . gate_key_j, or s
  X gate_key{};    // [B,G,K,w]
  X rows{};        // [B,H,T,its rows]
  X heads{};       // [H, its heads]
  X table{};       // [B,H,T,P+1], or [B,H,T,2 N] of N knots
  X knots{};       // [N], ascending, dense; takes no gradient
};

// Of a vector for each distance, W of them at most as many as keys.
template <class X>
struct DistanceOperands {
  X query{};  // [B,H,T,w], w of any width
  X key{};    // [B,G,W,w]
};

// Of how logits become weights.
template <class X>
struct NormaliserOperands {
  X sink{};  // c [H] of softmax; null: none
  X rest{};  // r [B,H,T,e]: o_i += (1 - sum_j a_ij) r_i; null: what is left over goes nowhere
};

// Of a bias; their shapes are those of its kind.
template <class X>
struct BiasOperands {
  X values{}, column{};
};

template <class X>
struct AttentionOperandsOf {
  X q{}, k{}, v{};  // [B,H,T,d], [B,G,K,d], [B,G,K,e]
  PolicyOperands<X> scan;
  DistanceOperands<X> distance;
  NormaliserOperands<X> normaliser;
};

// f(what each holds of an operand...), for every operand but those of biases. All: AttentionOperandsOf, or what has
// members of the same names.
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
  f(all.normaliser.sink...);
  f(all.normaliser.rest...);
}

// Likewise for what belongs to queries: [B,H,T,width].
template <class F, class... All>
void for_each_row_operand(const F& f, All&... all) {
  f(all.q...);
  f(all.scan.gate_query...);
  f(all.scan.rows...);
  f(all.scan.table...);
  f(all.distance.query...);
  f(all.normaliser.rest...);
}

// Likewise for what belongs to keys, [B,G,K,width] or fewer rows, and what is added up like it.
template <class F, class... All>
void for_each_key_operand(const F& f, All&... all) {
  f(all.k...);
  f(all.v...);
  f(all.scan.gate_key...);
  f(all.distance.key...);
}

}  // namespace tally

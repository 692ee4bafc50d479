// The problem of fused attention: operands, their shapes, and options. Every stage describes it by these structs. X
// stands for an operand: a tensor (autograd), a view of it or of its gradient (kernels), a pointer to accumulators
// (core/cpu/attention/partition.hpp), or a pointer with strides (cuda/attention/device.hpp). All stages walk
// for_each_operand: to check shapes, save for backward, allocate gradients, clear accumulators, and copy to the device.
// A new operand takes a member, a line in for_each_operand, the line that sets it (autograd/ops/attention.cpp),
// and the code that reads it. Kernels depend on these shapes, never on an encoding.
//
// B batch, H heads of queries, G of keys, T queries, K keys (the queries are the last T of K tokens), d, e widths of k,
// v. Query t has index i = K - T + t and attends to keys j <= i, except those that AttentionMask masks. G divides H,
// and query head h uses key head floor(h G/H) (arXiv 2305.13245).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/attention/mask.hpp"
#include "core/math/random.hpp"
#include "core/view.hpp"

namespace tally {

struct ScoreMod;

// A score modification (core/attention/score_mod.hpp), most often with a running sum along the keys.
template <class X>
struct ScoreModOperands {
  const ScoreMod* mod = nullptr;  // null: none
  X gate_query{}, gate_key{};     // p.gate_logit is scale gate_query_i . gate_key_j, or s
  X rows{}, heads{};              // scalars of the query, scalars of the head
  X table{};                      // P+1 entries a query, or a value and a slope for each of n knots
  X knots{};                      // ascending, dense; takes no gradient
};

// l_ij += scale query_i . key_n for the distance n = i - j. Distances >= W use the last key with cap, else add nothing.
// CUDA kernels do not implement it and get a row_toeplitz bias instead.
template <class X>
struct DistanceOperands {
  bool cap = false;
  X query{}, key{};
};

// How the logits of a row become its weights: a_ij = n(l_ij) / Z_i,  Z_i = z0 + sum_j m(l_ij) over the unmasked keys j.
// The weights of a fully masked row are 0.
enum class SoftmaxRuleKind : std::uint8_t {
  softmax,   // n = m = e^l; z0 = e^c with a sink c, else 0
  sigmoid,   // n = sigmoid(l - offset), Z = 1 (arXiv 2409.04431)
  softpick,  // n = relu(e^l - 1), m = |e^l - 1|, z0 = 1e-8 (arXiv 2504.20966)
  exp        // n = e^l, Z = 1; requires logits <= 0
};
template <class X>
struct SoftmaxRuleOperands {
  using Kind = SoftmaxRuleKind;
  Kind kind = Kind::softmax;
  X sink{};           // of softmax
  double offset = 0;  // of sigmoid
  X rest{};           // r, the value of the leftover mass: o_i += (1 - sum_j a_ij) r_i; absent: it is dropped

  bool is_softmax() const { return kind == Kind::softmax && !sink.defined(); }  // for tensors
};

enum class BiasKind : std::uint8_t {
  toeplitz,      // l += values_h[i-j]
  row_column,    // l += values_i + column_j; either may be absent
  row_toeplitz,  // l += values_i[i-j]; distances >= W: the last with cap, else 0
  dense          // l += values_ij
};
template <class X>
struct BiasOperands {
  using Kind = BiasKind;
  Kind kind = Kind::toeplitz;
  bool cap = false;
  X values{}, column{};
};

// The operands that every kernel takes.
template <class X>
struct AttentionOperandsOf {
  X q{}, k{}, v{};
  ScoreModOperands<X> score_mod;
  DistanceOperands<X> distance;
  SoftmaxRuleOperands<X> softmax_rule;
};

struct AttentionOptions {
  double scale = 1;
  AttentionMask mask;
  // Weights are 0 with probability `dropout`, else a / (1 - dropout). The stream's element of a weight is its index in
  // [B,H,T,K], as in the `dropout` kernel on materialised weights.
  double dropout = 0;
  RandomStream dropout_stream;
};

template <class X>
struct AttentionProblem : AttentionOptions, AttentionOperandsOf<X> {
  std::vector<BiasOperands<X>> biases;
};

struct OperandRule {
  enum class Type : std::uint8_t {
    floating,  // the type of the call
    f64,
    packed,  // may be bf16
    matmul   // the same; rounded to bf16 if matmuls are
  };
  enum class Gradient : std::uint8_t {
    whole,     // written, not added to
    by_token,  // the same, with heads interleaved by token; bf16 if the operand is
    added,     // CUDA kernels clear it and add to it, others write it
    partial    // begins at 0, because kernels write only some elements
  };
  std::string_view name;   // in messages
  std::string_view shape;  // a letter an axis: sizes as above, or one size in all operands; *: any size
  Type type = Type::floating;
  Gradient gradient = Gradient::whole;

  bool is_of_keys() const { return shape.substr(0, 2) == "BG"; }
};

// f(rule, the member of each...) for the operands of a bias.
template <class F, class First, class... More>
void for_each_bias_operand(const F& f, First& first, More&... more) {
  using Rule = OperandRule;
  switch (first.kind) {
    case BiasKind::toeplitz:
      return f(Rule{"a toeplitz bias", "H*", Rule::Type::floating, Rule::Gradient::partial}, first.values,
               more.values...);
    case BiasKind::row_column:
      f(Rule{"a row bias", "BHT", Rule::Type::f64}, first.values, more.values...);
      return f(Rule{"a column bias", "BHK", Rule::Type::f64}, first.column, more.column...);
    case BiasKind::row_toeplitz:
      return f(Rule{"a bias of rows by distance", "BHT*", Rule::Type::floating, Rule::Gradient::added}, first.values,
               more.values...);
    case BiasKind::dense:
      return f(Rule{"a dense bias", "BHTK", Rule::Type::floating, Rule::Gradient::partial}, first.values,
               more.values...);
  }
}

template <class X>
concept HasBiases = requires(X& x) {
  x.biases;
};

// f(rule, the member of each...) for every operand that all have; the first has at most as many biases as the others.
template <class F, class... All>
void for_each_operand(const F& f, All&... all) {
  using Rule = OperandRule;
  using Type = Rule::Type;
  using Gradient = Rule::Gradient;
  f(Rule{"q", "BHTd", Type::matmul, Gradient::by_token}, all.q...);
  f(Rule{"k", "BGKd", Type::matmul, Gradient::by_token}, all.k...);
  f(Rule{"v", "BGKe", Type::matmul, Gradient::by_token}, all.v...);
  f(Rule{"the query of the gates", "BHTg", Type::matmul}, all.score_mod.gate_query...);
  f(Rule{"the key of the gates", "BGKg", Type::matmul}, all.score_mod.gate_key...);
  f(Rule{"the scalars of rows", "BHTr"}, all.score_mod.rows...);
  f(Rule{"the scalars of heads", "Hh"}, all.score_mod.heads...);
  f(Rule{"the table of positions", "BHT*", Type::floating, Gradient::added}, all.score_mod.table...);
  f(Rule{"the knots", "n"}, all.score_mod.knots...);
  f(Rule{"the query of a product by distance", "BHTw", Type::matmul}, all.distance.query...);
  f(Rule{"the key of a product by distance", "BGWw", Type::matmul}, all.distance.key...);
  f(Rule{"the sink", "H"}, all.softmax_rule.sink...);
  f(Rule{"the value of the leftover mass", "BHTe", Type::packed}, all.softmax_rule.rest...);
  if constexpr ((HasBiases<All> && ...)) {
    const auto with_biases = [&f](auto& first, auto&... more) {
      for (std::size_t n = 0; n < first.biases.size(); ++n) {
        for_each_bias_operand(f, first.biases[n], more.biases[n]...);
      }
    };
    with_biases(all...);
  }
}

// The same problem with f(rule, operand of x, operands of others...) for each operand.
template <class Y, class F, class X, class... Others>
AttentionProblem<Y> transformed(const F& f, const AttentionProblem<X>& x, const Others&... others) {
  AttentionProblem<Y> y;
  static_cast<AttentionOptions&>(y) = x;
  y.score_mod.mod = x.score_mod.mod;
  y.distance.cap = x.distance.cap;
  y.softmax_rule.kind = x.softmax_rule.kind;
  y.softmax_rule.offset = x.softmax_rule.offset;
  for (const BiasOperands<X>& bias : x.biases) y.biases.push_back({bias.kind, bias.cap, {}, {}});
  for_each_operand([&f](const OperandRule& rule, Y& target, const auto&... from) { target = f(rule, from...); }, y, x,
                   others...);
  return y;
}

// Softmax statistics that forward saves for backward: AttentionCall::softmax_statistics.
inline constexpr std::int64_t statistics_per_row = 3;

// The arguments of one call of a kernel. Operands may have any strides, 0 on broadcast axes.
struct AttentionCall : AttentionProblem<View> {
  // Results.
  View output;              // [B,H,T,e], any strides; may be bf16
  View softmax_statistics;  // [B,H,T,3] dense: the shift M of its exponents, e^M / Z, and the leftover mass
  View scan_checkpoints;    // running sums at the tiles' edges, attention_prefix_sums elements; null without sums

  std::int64_t batch() const { return q.shape[0]; }
  std::int64_t heads() const { return q.shape[1]; }
  std::int64_t queries() const { return q.shape[2]; }
  std::int64_t keys() const { return k.shape[2]; }
};

inline std::int64_t key_heads(const AttentionCall& call) { return call.k.shape[1]; }
// Number of query heads that share a key head.
inline std::int64_t gqa_group_size(const AttentionCall& call) { return call.heads() / key_heads(call); }

// The gradient of each operand; null if it is not needed or the operand takes none. They may have any strides, but
// gradients of shared operands are dense. The gradients of q, k and v may be bf16 with contiguous columns. On the CPU
// distance.query may be the view of q, and its gradient is then added to q's.
struct AttentionGradients : AttentionProblem<View> {
  View d_output;  // given
};

}  // namespace tally

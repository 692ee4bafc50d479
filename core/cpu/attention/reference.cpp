// Attention in scalar loops: read this file before the fused kernels, which compute the same numbers tile by tile
// (core/cpu/attention/README.md). Every query of a head is computed separately, in numbered passes: forward from top to
// bottom, backward through the same passes from bottom to top. dy is the derivative of the loss by y.
//
// There are K keys j and T queries, the last T of the K tokens. Row t of q and of the output belongs to token
// i = K - T + t, which attends to the keys j <= i that the mask allows (core/attention/mask.hpp).
#include "core/cpu/attention/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/device/kernels.hpp"
#include "core/error.hpp"

namespace tally::cpu::reference {
namespace {

// A key that the query attends to, and the numbers of the two.
struct Pair {
  std::int64_t j = 0;
  double logit = 0, weight = 0, d_logit = 0, d_weight = 0;
  // Not of plain attention:
  ScoreModInputs in = {}, d_in = {};
  double bias = 0, n_slope = 0, m_slope = 0;
};

// The keys of query t, from left to right.
std::vector<Pair> keys_of(const AttentionCall& call, std::int64_t t) {
  std::vector<Pair> keys;
  for (std::int64_t j = 0; j <= token_of(call, t); ++j) {
    if (call.mask.attends(token_of(call, t), j)) keys.push_back({.j = j});
  }
  return keys;
}

// --- Plain attention -------------------------------------------------------------------------------------------------
//
//   s_ij = scale q_i.k_j      a_ij = e^s_ij / sum_k e^s_ik      o_i = sum_j a_ij v_j

std::vector<Pair> plain_row(const AttentionCall& call, const Head& x, std::int64_t t) {
  std::vector<Pair> row = keys_of(call, t);
  // Pass 1: scores. Their maximum keeps the exponentials from overflowing.
  double largest = std::numeric_limits<double>::lowest();
  for (Pair& p : row) {
    p.logit = call.scale * dot(x.q, t, x.k, p.j);
    largest = std::max(largest, p.logit);
  }
  // Pass 2: exponentials and their sum.
  double sum = 0;
  for (Pair& p : row) sum += p.weight = std::exp(p.logit - largest);
  // Pass 3: weights.
  for (Pair& p : row) p.weight /= sum;
  return row;
}

void plain_forward(const AttentionCall& call, const Head& x, std::int64_t t) {
  // Pass 4: the output is the weighted sum of the values.
  for (const Pair& p : plain_row(call, x, t)) add(x.output, t, p.weight, x.v, p.j);
}

void plain_backward(const AttentionCall& call, const Head& x, const Head& d, std::int64_t t) {
  std::vector<Pair> row = plain_row(call, x, t);
  // Pass 4: da_ij = do_i.v_j,  dv_j += a_ij do_i
  double total = 0;  // D_i = sum_j a_ij da_ij
  for (Pair& p : row) {
    p.d_weight = dot(d.output, t, x.v, p.j);
    total += p.weight * p.d_weight;
    add(d.v, p.j, p.weight, d.output, t);
  }
  for (const Pair& p : row) {
    // Passes 3 and 2: ds_ij = a_ij (da_ij - D_i)
    const double d_score = p.weight * (p.d_weight - total);
    // Pass 1: dq_i += scale ds_ij k_j,  dk_j += scale ds_ij q_i
    add(d.q, t, call.scale * d_score, x.k, p.j);
    add(d.k, p.j, call.scale * d_score, x.q, t);
  }
}

// --- With a score modification, biases and other softmax rules -------------------------------------------------------
//
// A score modification turns the score s_ij into the logit l_ij by up to three functions: `gate`, which is summed along
// the keys, `position`, at which the table of the row is read, and `logit`. In CoPE (arXiv 2405.18719) they are
//
//   equation 3      gate       g_ij = sigmoid(q_i.k_j / sqrt(d))
//   equation 4      position   p_ij = sum of g_ik over the keys k = j..i
//   equations 5, 8  entry      e_ij = z_i at p_ij, interpolated between whole positions;  z_i[n] = q_i.e[n]
//                   logit      l_ij = s_ij + e_ij
//
// Biases are added to l_ij, or to s_ij if the score modification reads them. A softmax rule
// (core/attention/problem.hpp) has a_ij = n(l_ij) / Z_i with Z_i = z0 + sum_j m(l_ij). The leftover mass is 1 - sum_j
// a_ij, and its value is r_i.

struct Row {
  std::vector<Pair> pairs;
  double sink_weight = 0, leftover = 1;
};

// Passes 1 to 4.
Row logits_of(const AttentionCall& call, const Head& x, std::int64_t t) {
  const ScalarScoreMod& mod = score_mod_of(call);
  Row row{.pairs = keys_of(call, t)};
  // Pass 1: scores, biases, and the other numbers of a pair.
  for (Pair& p : row.pairs) {
    p.in.s = call.scale * dot(x.q, t, x.k, p.j);
    p.in.gate_logit =
        x.score_mod.gate_query ? call.scale * dot(x.score_mod.gate_query, t, x.score_mod.gate_key, p.j) : p.in.s;
    for_each_bias(call, x, t, p.j, [&](double& element) { p.bias += element; });
    if (mod.traits.after_biases) p.in.s += p.bias;
    p.in.distance = static_cast<double>(token_of(call, t) - p.j);
    for (int n = 0; n < mod.traits.rows; ++n) p.in.scalars[n] = x.score_mod.rows(t, n);
    for (int n = 0; n < mod.traits.heads; ++n) p.in.scalars[mod.traits.rows + n] = x.score_mod.heads(n);
  }
  // Pass 2: gates, summed from the query to the left (equations 3 and 4).
  double sum = 0;
  for (auto p = row.pairs.rbegin(); p != row.pairs.rend(); ++p) {
    const double gate = mod.gate(p->in).value;
    p->in.sum = mod.traits.sums_own_gate ? sum + gate : sum;
    sum += gate;
  }
  for (Pair& p : row.pairs) {
    // Pass 3: entries of the table (equations 5 and 8).
    if (x.score_mod.table) {
      const Interpolation at = interpolation(call, mod.position(p.in).value);
      p.in.entry = at.low_weight * x.score_mod.table(t, at.low) + at.high_weight * x.score_mod.table(t, at.high);
    }
    // Pass 4: logits.
    p.logit = mod.logit(p.in).value + (mod.traits.after_biases ? 0 : p.bias);
  }
  return row;
}

// Pass 5: weights, and the slopes n'(l_ij) / Z_i and m'(l_ij) / Z_i. A shift keeps the exponentials from overflowing.
void set_weights(const AttentionCall& call, const Head& x, Row& row) {
  using Kind = SoftmaxRuleOperands<View>::Kind;
  const Operand& sink = x.softmax_rule.sink;
  const Kind kind = call.softmax_rule.kind;
  double largest = std::numeric_limits<double>::lowest();
  for (const Pair& p : row.pairs) largest = std::max(largest, p.logit);
  double shift = 0, z0 = 1;  // sigmoid and exp: m(l) = 0 and Z_i = 1
  if (kind == Kind::softmax) {
    shift = sink ? std::max(sink(0), largest) : largest;
    z0 = sink ? std::exp(sink(0) - shift) : 0;
  } else if (kind == Kind::softpick) {
    shift = std::max(0.0, largest);
    z0 = 1e-8 * std::exp(-shift);
  }
  double z = z0;
  for (const Pair& p : row.pairs) z += rule_at(call.softmax_rule, p.logit, shift).m;
  const double inverse = z > 0 ? 1 / z : 0;  // a row without keys has no weights
  for (Pair& p : row.pairs) {
    const RuleAt at = rule_at(call.softmax_rule, p.logit, shift);
    p.weight = at.n * inverse;
    p.n_slope = at.n_slope * inverse;
    p.m_slope = at.m_slope * inverse;
    row.leftover -= p.weight;
  }
  row.sink_weight = z0 * inverse;
}

void modified_forward(const AttentionCall& call, const Head& x, std::int64_t t) {
  Row row = logits_of(call, x, t);
  set_weights(call, x, row);
  // Pass 6: o_i = sum_j a_ij v_j + (1 - sum_j a_ij) r_i
  for (const Pair& p : row.pairs) add(x.output, t, p.weight, x.v, p.j);
  add(x.output, t, row.leftover, x.softmax_rule.rest, t);
}

void modified_backward(const AttentionCall& call, const Head& x, const Head& d, std::int64_t t) {
  const ScalarScoreMod& mod = score_mod_of(call);
  Row row = logits_of(call, x, t);
  set_weights(call, x, row);
  // Pass 6: da_ij = do_i.(v_j - r_i),  dv_j += a_ij do_i,  dr_i = (1 - sum_j a_ij) do_i
  double total = 0;  // D_i = sum_j a_ij da_ij
  for (Pair& p : row.pairs) {
    p.d_weight = dot(d.output, t, x.v, p.j) - dot(x.softmax_rule.rest, t, d.output, t);
    total += p.weight * p.d_weight;
    add(d.v, p.j, p.weight, d.output, t);
  }
  add(d.softmax_rule.rest, t, row.leftover, d.output, t);
  // Pass 5: dl_ij = (n'(l_ij) da_ij - m'(l_ij) D_i) / Z_i, and for a sink dc = -e^c / Z_i D_i
  d.softmax_rule.sink(0) -= row.sink_weight * total;
  for (Pair& p : row.pairs) {
    p.d_logit = p.n_slope * p.d_weight - p.m_slope * total;
    // Pass 4: from the logit to its inputs.
    p.d_in.add(p.d_logit, mod.logit(p.in).by);
    // Pass 3: from the entry to the table and to the position.
    if (!x.score_mod.table) continue;
    const ScoreModResult position = mod.position(p.in);
    const Interpolation at = interpolation(call, position.value);
    d.score_mod.table(t, at.low) += at.low_weight * p.d_in.entry;
    d.score_mod.table(t, at.high) += at.high_weight * p.d_in.entry;
    const double slope = at.low_slope * x.score_mod.table(t, at.low) + x.score_mod.table(t, at.high);
    p.d_in.add(slope * p.d_in.entry, position.by);
  }
  // Pass 2: gate k is in the sums of all keys to its left, so dg_ik = sum_{j<=k} dp_ij, from left to right.
  double d_sums = 0;
  for (Pair& p : row.pairs) {
    const double d_sums_before = d_sums;
    d_sums += p.d_in.sum;
    p.d_in.add(mod.traits.sums_own_gate ? d_sums : d_sums_before, mod.gate(p.in).by);
  }
  // Pass 1: from scores, gate logits, biases and numbers to the operands.
  for (const Pair& p : row.pairs) {
    const double d_score = call.scale * (p.d_in.s + (x.score_mod.gate_query ? 0 : p.d_in.gate_logit));
    add(d.q, t, d_score, x.k, p.j);
    add(d.k, p.j, d_score, x.q, t);
    add(d.score_mod.gate_query, t, call.scale * p.d_in.gate_logit, x.score_mod.gate_key, p.j);
    add(d.score_mod.gate_key, p.j, call.scale * p.d_in.gate_logit, x.score_mod.gate_query, t);
    for_each_bias(call, d, t, p.j, [&](double& element) { element += mod.traits.after_biases ? p.d_in.s : p.d_logit; });
    for (int n = 0; n < mod.traits.rows; ++n) d.score_mod.rows(t, n) += p.d_in.scalars[n];
    for (int n = 0; n < mod.traits.heads; ++n) d.score_mod.heads(n) += p.d_in.scalars[mod.traits.rows + n];
  }
}

// ---------------------------------------------------------------------------------------------------------------------

bool is_plain(const AttentionCall& call) {
  const SoftmaxRuleOperands<View>& rule = call.softmax_rule;
  return call.score_mod.mod == nullptr && call.biases.empty() &&
         rule.kind == SoftmaxRuleOperands<View>::Kind::softmax && !rule.sink && !rule.rest;
}

void check_call(const AttentionCall& call) {
  check(call.q.dtype == DType::f64 && call.dropout == 0 && !call.distance.key, "attention",
        "the reference takes f64, no dropout and no products by distance");
}

// f(b, h) for every head of queries of every sequence.
template <class F>
void for_each_head(const AttentionCall& call, const F& f) {
  for (std::int64_t b = 0; b < call.batch(); ++b) {
    for (std::int64_t h = 0; h < call.heads(); ++h) f(b, h);
  }
}

}  // namespace

void attention(const AttentionCall& call) {
  check_call(call);
  fill(call.output, 0);
  for_each_head(call, [&](std::int64_t b, std::int64_t h) {
    const Head x(call, call, call.output, b, h);
    for (std::int64_t t = 0; t < call.queries(); ++t) {
      is_plain(call) ? plain_forward(call, x, t) : modified_forward(call, x, t);
    }
  });
}

void attention_backward(const AttentionCall& call, const AttentionGradients& gradients) {
  check_call(call);
  const auto clear = [](const OperandRule&, const View& x) {
    if (x) fill(x, 0);
  };
  for_each_operand(clear, gradients);
  for_each_head(call, [&](std::int64_t b, std::int64_t h) {
    const Head x(call, call, call.output, b, h), d(call, gradients, gradients.d_output, b, h);
    for (std::int64_t t = 0; t < call.queries(); ++t) {
      is_plain(call) ? plain_backward(call, x, d, t) : modified_backward(call, x, d, t);
    }
  });
}

}  // namespace tally::cpu::reference

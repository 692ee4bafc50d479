#include "nn/attention/composed.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/score_mod_tensors.hpp"
#include "core/attention/pair_functions.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"

namespace tally {

Tensor mask_tensor(const AttentionMask& mask, std::int64_t length, DType dtype, Device device, std::int64_t first,
                   bool strictly) {
  const NoGrad not_recorded;
  const Tensor index = cumsum(Tensor::full({1, length}, 1.0, dtype, device)) + -1.0;
  const Tensor row = unsqueeze(slice(index, 1, first, length), 2), column = unsqueeze(index, 1);
  const Tensor before = strictly ? less(column, row) : less_equal(column, row);
  if (mask.is_causal_only()) return before;
  std::vector<double> begin;
  for (std::int64_t i = first; i < length; ++i) begin.push_back(static_cast<double>(mask.begin(i)));
  const Tensor own = Tensor::from(begin, {1, length - first, 1}, device).to(dtype);
  const Tensor always = Tensor::full({1}, static_cast<double>(mask.first), dtype, device);
  const Tensor one = Tensor::full({1}, 1.0, dtype, device), zero = Tensor::zeros({1}, dtype, device);
  const Tensor near = where(less_equal(own, column), one, where(less(column, always), one, zero));
  return less(zero, where(before, near, zero));
}

Tensor masked_fill_zero(const Tensor& x, const Tensor& mask) {
  return where(mask, x, Tensor::zeros({1}, x.dtype(), x.device()));
}

Tensor masked_fill_min(const Tensor& x, const Tensor& mask) {
  return where(mask, x, Tensor::full({1}, std::numeric_limits<float>::lowest(), x.dtype(), x.device()));
}

namespace {

// Which keys each query attends to, bool [1, T, T].
Tensor mask_tensor(const AttentionOperands& in) {
  return tally::mask_tensor(in.mask, in.q.size(2), in.q.dtype(), in.q.device());
}

// Plain attention of q [B, H, T, d] to k and v [B, G, T, d], whose heads are shared by H / G heads of queries:
//   s_ij = scale q_i.k_j,  a_ij = softmax of s_i over the keys j that query i attends to,  o_i = sum_j a_ij v_j
Tensor plain_attention(const AttentionOperands& in, const Dropout& dropout, const ForwardContext& pass,
                       AttentionTrace* trace) {
  const std::int64_t heads = in.q.size(1);
  Tensor weights = matmul(in.q, transpose(repeat_kv(in.k, heads), -1, -2), in.scale);  // scores [B, H, T, T]
  if (!in.mask.is_causal_only()) weights = masked_fill_min(weights, mask_tensor(in));
  weights = causal_softmax(weights);
  if (trace != nullptr) trace->weights = weights.detach();
  return matmul(dropout(weights, pass), repeat_kv(in.v, heads));
}

// True if nothing is added to the scores and the rule is the softmax, as for `none` and `rope`.
bool is_plain(const Score& score, const Encoding& encoding) {
  return !score.score_mod && score.more_score_mods.empty() && score.biases.empty() && score.softmax_rule.is_softmax() &&
         !score.softmax_rule.rest.defined() && score.factor == 1 && !score.row_factor.defined() &&
         !encoding.traits.replaces_softmax;
}

// --- With score modifications and biases (autograd/score.hpp) and other rules for the weights ------------------------

// scale r_i.G_j [B, H, T, T], for keys [B, G, T, d].
Tensor product_of(const Tensor& query, const Tensor& key, double scale) {
  return matmul(query, transpose(repeat_kv(key, query.size(1)), -1, -2), scale);
}

// The input of gates: the score without another encoding's bias, or the product of separate operands.
Tensor gate_score(const Gates& source, const Tensor& s, const AttentionOperands& in) {
  return source.query.defined() ? product_of(source.query, source.key, in.scale) : s;
}

// Sums of the gates over the keys from j (own), or from j + 1, to i.
Tensor positions_of(const Tensor& all_gates, bool own, const AttentionOperands& in, AttentionTrace* trace) {
  const Tensor gates = in.mask.is_causal_only() ? all_gates : masked_fill_zero(all_gates, mask_tensor(in));
  const Tensor sums = causal_suffix_sum(gates),
               positions = own ? sums : sums - masked_fill_zero(gates, mask_tensor(in));
  if (trace != nullptr) {
    trace->gates = masked_fill_zero(gates.detach(), mask_tensor(in));
    trace->positions = positions.detach();
  }
  return positions;
}

// i - j [T, T], 0 for keys after the query
Tensor distances(const AttentionOperands& in) {
  const NoGrad not_recorded;
  const Tensor index = cumsum(Tensor::full({1, in.q.size(2)}, 1.0, in.q.dtype(), in.q.device()));
  return relu(transpose(index, 0, 1) - index);
}

// The tables' values at x [B, H, T, T], between the knots that they share.
Tensor between_knots(const AppliedScoreMod& applied, const Tensor& x) {
  Tensor entry;
  for (std::int64_t n = 0; n < applied.knots.size(0); ++n) {
    const Tensor knot = slice(applied.knots, 0, n, n + 1);
    const Tensor value = slice(applied.table, 3, 2 * n, 2 * n + 1),
                 slope = slice(applied.table, 3, 2 * n + 1, 2 * n + 2);
    const Tensor here = value + slope * (x - knot);
    entry = n == 0 ? here : where(less(knot, x), here, entry);
  }
  return entry;
}

// A score modification's l from s, which is the score (scale times q.k) or the logits so far. Gates read `score`.
// spends: the softmax rule is exp, and the sum is the spent mass (stick-breaking).
Tensor modified(const AppliedScoreMod& applied, const Tensor& score, const Tensor& s, const AttentionOperands& in,
                double scale, bool spends, AttentionTrace* trace) {
  const ScoreMod& mod = *applied.mod;
  ScoreModTensors pairs{s, gate_score(applied.gates, score, in), {}, {}, distances(in), applied.rows, applied.heads};
  if (mod.traits.sums) {
    const Tensor gates = broadcast_to(mod.on_tensors->gate(pairs), s.shape());
    AttentionTrace own;
    pairs.sum = positions_of(gates, mod.traits.sums_own_gate, in, trace != nullptr ? &own : nullptr);
    if (trace != nullptr && spends) {
      // A key that takes a share b of the remaining mass has the gate -log(1 - b).
      trace->breaks = negate(exp(negate(own.gates))) + 1.0;
    } else if (trace != nullptr && !trace->gates.defined()) {
      trace->gates = own.gates;
      trace->positions = own.positions;
    }
  }
  if (mod.traits.table) {
    const Tensor position = broadcast_to(mod.on_tensors->position(pairs), s.shape());
    pairs.entry = mod.traits.knots ? between_knots(applied, position) : interpolate_causal(applied.table, position);
  }
  if (applied.materialised_logit) return applied.materialised_logit(s, pairs.sum.x, scale);
  return broadcast_to(mod.on_tensors->logit(pairs), s.shape());
}
// Applies the score modifications that come after all biases.
Tensor biased_logits(const Score& score, const Tensor& logits, const AttentionOperands& in, AttentionTrace* trace) {
  const bool spends = score.softmax_rule.kind == SoftmaxRule::Kind::exp;
  Tensor l = logits;
  for (const AppliedScoreMod* const pair : score.score_mods()) {
    if (pair->mod->traits.after_biases) l = modified(*pair, l, l, in, in.scale, spends, trace);
  }
  return l;
}
// `mask` without the pairs that a score modification masks.
Tensor weighted_pairs(const Tensor& mask, const Tensor& logits) {
  const NoGrad not_recorded;
  const auto number = [&](double x) { return Tensor::full({1}, x, logits.dtype(), logits.device()); };
  const Tensor none = less_equal(logits, number(std::numeric_limits<float>::lowest() / 2));  // NaN stays
  return less(number(0), where(mask, where(none, number(0), number(1)), number(0)));
}

Tensor bias_term(const Toeplitz& bias, const AttentionOperands& in) {
  const std::int64_t length = in.q.size(2);
  check(bias.bias.size(-1) >= length, "attention", "a toeplitz bias of {} distances does not cover {} tokens",
        bias.bias.size(-1), length);
  return read_distance(unsqueeze(bias.bias, 1), length, false);
}

Tensor bias_term(const RowColumn& bias, const AttentionOperands&) {
  if (!bias.column.defined()) return unsqueeze(bias.row, 3);
  if (!bias.row.defined()) return unsqueeze(bias.column, 2);
  return unsqueeze(bias.row, 3) + unsqueeze(bias.column, 2);
}

Tensor bias_term(const RowToeplitz& bias, const AttentionOperands& in) {
  return read_distance(bias.z, in.q.size(2), bias.cap);
}

Tensor bias_term(const ToeplitzProduct& bias, const AttentionOperands& in) {
  return bias_term(bias.materialised(in.scale), in);
}

Tensor bias_term(const Product& bias, const AttentionOperands& in) {
  return product_of(bias.query, bias.key, in.scale);
}

Tensor bias_term(const Dense& bias, const AttentionOperands&) { return bias.bias; }

// The weights, and the leftover mass [B, H, T, 1] if SoftmaxRule::rest needs it.
struct Weights {
  Tensor a, left;
};

Weights softmax_with_sink(const Tensor& logits, const Tensor& sink, const Tensor& mask) {
  const Shape one{logits.size(0), logits.size(1), logits.size(2), 1};
  const Tensor column = broadcast_to(unsqueeze(unsqueeze(sink, 1), 2), one);
  const Tensor all = softmax(concat(std::vector<Tensor>{column, masked_fill_min(logits, mask)}, 3));
  return {slice(all, 3, 1, all.size(3)), slice(all, 3, 0, 1)};
}

// relu(e^l - 1) / (sum |e^l - 1| + 1e-8), under a shift that keeps e^l from overflowing.
Tensor softpick_weights(const Tensor& logits, const Tensor& mask) {
  const Tensor l = masked_fill_zero(logits, mask), shift = relu(max(l, 3, true)).detach();
  const Tensor one = exp(negate(shift));
  const Tensor t = masked_fill_zero(exp(l - shift) - one, mask);
  return relu(t) / (sum(abs(t), {3}, true) + one * attention::softpick_least);
}

// The weights of these logits.
Weights weights_of(const Tensor& logits, const Tensor& mask, const AttentionInput& in, const Score& score,
                   const Encoding& encoding) {
  const SoftmaxRule& rule = score.softmax_rule;
  Weights weights;
  switch (rule.kind) {
    case SoftmaxRule::Kind::softmax:
      if (rule.sink.defined()) return softmax_with_sink(logits, rule.sink, mask);
      weights.a = encoding.weights(logits, mask, in);
      break;
    case SoftmaxRule::Kind::sigmoid: weights.a = masked_fill_zero(sigmoid(logits - rule.offset), mask); break;
    case SoftmaxRule::Kind::softpick: weights.a = softpick_weights(logits, mask); break;
    // Masked logits must not overflow before they become 0.
    case SoftmaxRule::Kind::exp: weights.a = masked_fill_zero(exp(masked_fill_zero(logits, mask)), mask); break;
  }
  if (rule.rest.defined()) weights.left = negate(sum(weights.a, {3}, true)) + 1.0;
  return weights;
}

// The weights of final logits. A score modification may have masked further pairs, even whole rows.
Weights weights_after(const Tensor& logits, const Tensor& mask, const AttentionInput& in, const Score& score,
                      const Encoding& encoding) {
  if (!score.score_mod) return weights_of(logits, mask, in, score, encoding);
  const Tensor weighted = weighted_pairs(mask, logits.detach());
  Weights weights = weights_of(masked_fill_min(logits, weighted), weighted, in, score, encoding);
  weights.a = masked_fill_zero(weights.a, weighted);
  return weights;
}

// Weights computed without the scores, from score modifications and biases, with the same softmax_rule.
Tensor position_weights(const Tensor& joined, const AttentionOperands& operands, const AttentionInput& in,
                        const Score& score, const Encoding& encoding) {
  const Tensor logits = biased_logits(score, joined, operands, nullptr);
  return weights_after(logits, mask_tensor(operands), in, score, encoding).a.detach();
}

void check_lengths(const AttentionOperands& in) {
  check(in.k.size(2) == in.q.size(2), "attention", "the composed form takes as many queries as keys, got {} and {}",
        in.q.shape(), in.k.shape());
}

}  // namespace

Tensor composed_logits(const AttentionOperands& in, const Score& score, AttentionTrace* trace, Tensor* joined) {
  check_lengths(in);
  const double scale = in.scale * score.factor;
  const Tensor s = product_of(in.q, in.k, scale);
  Tensor logits = s;
  const auto join = [&](const Tensor& term) {
    logits = logits + term;
    if (joined == nullptr) return;
    if (!joined->defined()) *joined = Tensor::zeros(s.shape(), s.dtype(), s.device());
    *joined = *joined + term.detach();
  };
  for (const AppliedScoreMod* const pair : score.score_mods()) {
    if (pair->mod->traits.after_biases) continue;
    const Tensor l = modified(*pair, s, logits, in, scale, false, trace);
    join(l - logits);
    logits = l;
  }
  for (const Bias& bias : score.biases) {
    const Tensor term = std::visit([&](const auto& shape) { return bias_term(shape, in); }, bias);
    join(term.dtype() == logits.dtype() ? term : cast(term, logits.dtype()));
    const auto* sums = std::get_if<RowColumn>(&bias);
    if (trace != nullptr && sums != nullptr && sums->row.defined() && sums->column.defined()) {
      const Tensor kept = cast(exp(masked_fill_zero(term.detach(), mask_tensor(in))), logits.dtype());
      trace->decay = masked_fill_zero(trace->decay.defined() ? trace->decay * kept : kept, mask_tensor(in));
    }
  }
  if (score.row_factor.defined()) {
    const Tensor factor = unsqueeze(score.row_factor, 3);
    // Pairs that a score modification masks stay masked.
    const Tensor weighted = score.multiplies_pairs() ? weighted_pairs(mask_tensor(in), logits.detach()) : Tensor();
    const auto times = [&](const Tensor& x, const Tensor& by) {
      return weighted.defined() ? masked_fill_min(masked_fill_zero(x, weighted) * by, weighted) : x * by;
    };
    logits = times(logits, factor);
    if (joined != nullptr && joined->defined()) *joined = times(*joined, factor.detach());
  }
  return logits;
}

Tensor composed_attention(const AttentionOperands& operands, const Score& score, const Encoding& encoding,
                          const AttentionInput& in, const Dropout& dropout, const ForwardContext& pass,
                          AttentionTrace* trace) {
  check_lengths(operands);
  if (is_plain(score, encoding)) return plain_attention(operands, dropout, pass, trace);
  Weights weights;
  {
    Tensor joined;
    Tensor logits = composed_logits(operands, score, trace, trace != nullptr ? &joined : nullptr);
    if (joined.defined()) trace->position_weights = position_weights(joined, operands, in, score, encoding);
    logits = biased_logits(score, logits, operands, trace);
    weights = weights_after(logits, mask_tensor(operands), in, score, encoding);
  }
  if (trace != nullptr) trace->weights = weights.a.detach();
  const Tensor output = matmul(dropout(weights.a, pass), repeat_kv(operands.v, operands.q.size(1)));
  const Tensor& rest = score.softmax_rule.rest;
  return rest.defined() && weights.left.defined() ? output + weights.left * rest : output;
}

}  // namespace tally

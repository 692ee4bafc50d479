#include "nn/composed.hpp"

#include <limits>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/attention/policies.hpp"
#include "core/error.hpp"
#include "nn/attention.hpp"

namespace tally {
namespace {

// Which pairs are seen, bool [1, T, T]; strictly: no token sees itself.
Tensor seen_pairs(const AttentionOperands& in, bool strictly = false) {
  const NoGrad not_recorded;
  const std::int64_t length = in.q.size(2);
  const DType dtype = in.q.dtype();
  const Device device = in.q.device();
  const Tensor place = cumsum(Tensor::full({1, length}, 1.0, dtype, device)) + -1.0;
  const Tensor row = unsqueeze(place, 2), column = unsqueeze(place, 1);
  const Tensor before = strictly ? less(column, row) : less_equal(column, row);
  if (in.visible.everything()) return before;
  std::vector<double> begin;
  for (std::int64_t i = 0; i < length; ++i) begin.push_back(static_cast<double>(in.visible.begin(i)));
  const Tensor own = Tensor::from(begin, {1, length, 1}, device).to(dtype);
  const Tensor always = Tensor::full({1}, static_cast<double>(in.visible.first), dtype, device);
  const Tensor one = Tensor::full({1}, 1.0, dtype, device), zero = Tensor::zeros({1}, dtype, device);
  const Tensor near = where(less_equal(own, column), one, where(less(column, always), one, zero));
  return less(zero, where(before, near, zero));
}

// 0 where a pair is not seen.
Tensor masked(const Tensor& x, const Tensor& seen) { return where(seen, x, Tensor::zeros({1}, x.dtype(), x.device())); }
// The lowest of all numbers, whose exponential is 0; not infinite, which the search for the first number that is not
// finite would take for a mistake.
Tensor lowered(const Tensor& x, const Tensor& seen) {
  return where(seen, x, Tensor::full({1}, std::numeric_limits<float>::lowest(), x.dtype(), x.device()));
}

// scale r_i.G_j [B, H, T, T], of keys [B, G, T, d].
Tensor product_of(const Tensor& query, const Tensor& key, double scale) {
  return matmul(query, transpose(for_query_heads(key, query.size(1)), -1, -2), scale);
}

// p_ij. Gates see the score alone, never another encoding's bias.
Tensor positions_of(const Gates& source, const Tensor& s, const AttentionOperands& in, AttentionTrace* trace) {
  const bool own = source.query.defined();
  Tensor gates = sigmoid(own ? product_of(source.query, source.key, in.scale) : s);
  if (!in.visible.everything()) gates = masked(gates, seen_pairs(in));
  const Tensor positions = causal_suffix_sum(gates);
  if (trace != nullptr) {
    trace->gates = masked(gates.detach(), seen_pairs(in));
    trace->positions = positions.detach();
  }
  return positions;
}

Tensor scan_term(const ContextualTable& scan, const Tensor& positions) { return interpolate_causal(scan.z, positions); }

Tensor scan_term(const ContextualSlope& scan, const Tensor& positions) {
  return unsqueeze(unsqueeze(scan.slope, 1), 2) * positions;
}

Tensor scan_term(const ContextualMlp& scan, const Tensor& positions) {
  Tensor sum;
  for (std::int64_t n = 0; n < scan.weight.size(0); ++n) {
    const Tensor hidden = relu(positions * slice(scan.weight, 0, n, n + 1) + slice(scan.bias, 0, n, n + 1));
    const Tensor term = slice(scan.coefficients, 3, n, n + 1) * hidden;
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

Tensor bias_term(const Toeplitz& bias, const AttentionOperands& in) {
  const std::int64_t length = in.q.size(2);
  check(bias.bias.size(-1) >= length, "attention", "a toeplitz bias of ", bias.bias.size(-1),
        " distances does not cover ", length, " tokens");
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

Tensor bias_term(const Product& bias, const AttentionOperands& in) {
  return product_of(bias.query, bias.key, in.scale);
}

Tensor bias_term(const Dense& bias, const AttentionOperands&) { return bias.bias; }

const StickBreaking* stick_of(const Score& score) {
  return score.scan ? std::get_if<StickBreaking>(&*score.scan) : nullptr;
}

// l_ij - what nearer keys and the key itself have taken of the stick.
Tensor rest_of_stick(const Tensor& logits, const Tensor& seen) {
  return logits - causal_suffix_sum(masked(softplus(logits), seen));
}

// The weights of a row, and what they leave over of 1 [B, H, T, 1], where something attends to that.
struct Weights {
  Tensor a, left;
};

Weights softmax_with_sink(const Tensor& logits, const Tensor& sink, const Tensor& seen) {
  const Shape one{logits.size(0), logits.size(1), logits.size(2), 1};
  const Tensor column = broadcast_to(unsqueeze(unsqueeze(sink, 1), 2), one);
  const Tensor all = softmax(concat(std::vector<Tensor>{column, lowered(logits, seen)}, 3));
  return {slice(all, 3, 1, all.size(3)), slice(all, 3, 0, 1)};
}

// relu(e^l - 1) / (sum |e^l - 1| + 1e-8), under a shift that keeps e^l from overflowing.
Tensor softpick_weights(const Tensor& logits, const Tensor& seen) {
  const Tensor l = masked(logits, seen), shift = relu(max(l, 3, true)).detach();
  const Tensor one = exp(negate(shift));
  const Tensor t = masked(exp(l - shift) - one, seen);
  return relu(t) / (sum(abs(t), {3}, true) + one * attention::softpick_least);
}

// Of these logits, from which a stick has been taken where there is one.
Weights weights_of(const Tensor& logits, const Tensor& seen, const AttentionOperands& in, const Score& score,
                   const Encoding& encoding) {
  const Normaliser& rule = score.normaliser;
  Weights weights;
  switch (rule.kind) {
    case Normaliser::Kind::softmax:
      if (rule.sink.defined()) return softmax_with_sink(logits, rule.sink, seen);
      weights.a = encoding.weights(in.visible.everything() ? logits : lowered(logits, seen));
      break;
    case Normaliser::Kind::sigmoid: weights.a = masked(sigmoid(logits - rule.offset), seen); break;
    case Normaliser::Kind::softpick: weights.a = softpick_weights(logits, seen); break;
    // What is not seen must not overflow on its way to 0.
    case Normaliser::Kind::exp: weights.a = masked(exp(masked(logits, seen)), seen); break;
  }
  if (rule.rest.defined()) weights.left = negate(sum(weights.a, {3}, true)) + 1.0;
  return weights;
}

// From what joins the scores alone, by the rule that the real weights follow.
Tensor position_weights(const Tensor& joined, const AttentionOperands& in, const Score& score,
                        const Encoding& encoding) {
  const StickBreaking* stick = stick_of(score);
  const Tensor seen = seen_pairs(in, stick != nullptr && !stick->attend_current);
  return weights_of(stick != nullptr ? rest_of_stick(joined, seen) : joined, seen, in, score, encoding).a.detach();
}

// What each term adds to l is kept in `joined` too, if that is given.
Tensor logits_of(const AttentionOperands& in, const Score& score, AttentionTrace* trace, Tensor* joined) {
  const std::int64_t length = in.q.size(2);
  check(in.k.size(2) == length, "attention", "the composed form takes as many queries as keys, got ", in.q.shape(),
        " and ", in.k.shape());
  const Tensor s = product_of(in.q, in.k, in.scale * score.factor);
  Tensor logits = s;
  const auto join = [&](const Tensor& term) {
    logits = logits + term;
    if (joined == nullptr) return;
    if (!joined->defined()) *joined = Tensor::zeros(s.shape(), s.dtype(), s.device());
    *joined = *joined + term.detach();
  };
  if (score.scan.has_value()) {
    std::visit(
        [&](const auto& scan) {
          if constexpr (requires { scan.gates; }) join(scan_term(scan, positions_of(scan.gates, s, in, trace)));
        },
        *score.scan);
  }
  for (const Bias& bias : score.biases) {
    const Tensor term = std::visit([&](const auto& shape) { return bias_term(shape, in); }, bias);
    join(term.dtype() == logits.dtype() ? term : cast(term, logits.dtype()));
    const auto* sums = std::get_if<RowColumn>(&bias);
    if (trace != nullptr && sums != nullptr && sums->row.defined() && sums->column.defined()) {
      const Tensor kept = cast(exp(masked(term.detach(), seen_pairs(in))), logits.dtype());
      trace->decay = masked(trace->decay.defined() ? trace->decay * kept : kept, seen_pairs(in));
    }
  }
  return logits;
}

}  // namespace

Tensor composed_logits(const AttentionOperands& in, const Score& score, AttentionTrace* trace) {
  return logits_of(in, score, trace, nullptr);
}

Tensor composed_attention(const AttentionOperands& in, const Score& score, const Encoding& encoding,
                          const Dropout& dropout, const Pass& pass, AttentionTrace* trace) {
  Weights weights;
  {
    Tensor joined;
    Tensor logits = logits_of(in, score, trace, trace != nullptr ? &joined : nullptr);
    if (joined.defined()) trace->position_weights = position_weights(joined, in, score, encoding);
    const StickBreaking* stick = stick_of(score);
    const Tensor seen = seen_pairs(in, stick != nullptr && !stick->attend_current);
    if (stick != nullptr) {
      if (trace != nullptr) trace->breaks = masked(sigmoid(logits.detach()), seen);
      logits = rest_of_stick(logits, seen);
    }
    weights = weights_of(logits, seen, in, score, encoding);
  }
  if (trace != nullptr) trace->weights = weights.a.detach();
  const Tensor output = matmul(dropout(weights.a, pass), for_query_heads(in.v, in.q.size(1)));
  const Tensor& rest = score.normaliser.rest;
  return rest.defined() && weights.left.defined() ? output + weights.left * rest : output;
}

}  // namespace tally

#include "nn/composed.hpp"

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention.hpp"

namespace tally {
namespace {

// bool [1, T, T]: whether j <= i, or j < i.
Tensor triangle(std::int64_t length, bool with_diagonal, DType dtype, Device device) {
  const NoGrad not_recorded;
  const Tensor distance = cumsum(Tensor::full({1, length}, 1.0, dtype, device));
  const Tensor row = unsqueeze(distance, 2), column = unsqueeze(distance, 1);
  return with_diagonal ? less_equal(column, row) : less(column, row);
}

// Elements with j <= i (or j < i) kept, 0 elsewhere.
Tensor masked(const Tensor& x, bool with_diagonal = true) {
  const Tensor zero = Tensor::zeros({1}, x.dtype(), x.device());
  return where(triangle(x.size(-1), with_diagonal, x.dtype(), x.device()), x, zero);
}

// scale r_i.G_j [B, H, T, T], of keys [B, G, T, d].
Tensor product_of(const Tensor& query, const Tensor& key, double scale) {
  return matmul(query, transpose(for_query_heads(key, query.size(1)), -1, -2), scale);
}

// p_ij. Gates see the score alone, never another encoding's bias.
Tensor positions_of(const Gates& source, const Tensor& s, const AttentionOperands& in, AttentionTrace* trace) {
  const bool own = source.query.defined();
  const Tensor gates = sigmoid(own ? product_of(source.query, source.key, in.scale) : s);
  const Tensor positions = causal_suffix_sum(gates);
  if (trace != nullptr) {
    trace->gates = masked(gates.detach());
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

// A [B, H, T, T] of logits, and the sums of softplus.
struct BrokenStick {
  Tensor weights, taken;
};
BrokenStick break_stick(const StickBreaking& scan, const Tensor& logits) {
  const Tensor taken = causal_suffix_sum(masked(softplus(logits), scan.attend_current));
  // Above the diagonal the sum is 0 and the logit means nothing: it must not overflow on its way to 0.
  return {masked(exp(masked(logits - taken, scan.attend_current)), scan.attend_current), taken};
}

// o gets A v and, where it is not dropped, what remains of the stick.
Tensor stick_breaking(const StickBreaking& scan, const Tensor& logits, const Tensor& v, const Dropout& dropout,
                      const Pass& pass, AttentionTrace* trace) {
  const BrokenStick stick = break_stick(scan, logits);
  if (trace != nullptr) {
    trace->weights = stick.weights.detach();
    trace->breaks = masked(sigmoid(logits.detach()), scan.attend_current);
  }
  const Tensor output = matmul(dropout(stick.weights, pass), v);
  if (!scan.remainder.defined()) return output;
  return output + exp(negate(slice(stick.taken, 3, 0, 1))) * scan.remainder;
}

const StickBreaking* stick_of(const Score& score) {
  return score.scan ? std::get_if<StickBreaking>(&*score.scan) : nullptr;
}

// The weights of these logits alone, by the rule that the real ones follow.
Tensor weights_of(const Tensor& logits, const Score& score, const Encoding& encoding) {
  const StickBreaking* stick = stick_of(score);
  return (stick != nullptr ? break_stick(*stick, logits).weights : encoding.weights(logits)).detach();
}

// What each term adds to l is kept in `joined` too, if that is given.
Tensor logits_of(const AttentionOperands& in, const Score& score, AttentionTrace* trace, Tensor* joined) {
  const std::int64_t length = in.q.size(2);
  check(in.k.size(2) == length, "attention", "the composed form takes as many queries as keys, got ", in.q.shape(),
        " and ", in.k.shape());
  const Tensor s = product_of(in.q, in.k, in.scale);
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
      const Tensor kept = cast(exp(masked(term.detach())), logits.dtype());
      trace->decay = masked(trace->decay.defined() ? trace->decay * kept : kept);
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
  const Tensor v = for_query_heads(in.v, in.q.size(1));
  Tensor weights;
  {
    Tensor joined;
    const Tensor logits = logits_of(in, score, trace, trace != nullptr ? &joined : nullptr);
    if (joined.defined()) trace->position_weights = weights_of(joined, score, encoding);
    if (const StickBreaking* stick = stick_of(score)) {
      return stick_breaking(*stick, logits, v, dropout, pass, trace);
    }
    weights = encoding.weights(logits);
  }
  if (trace != nullptr) trace->weights = weights.detach();
  return matmul(dropout(weights, pass), v);
}

}  // namespace tally

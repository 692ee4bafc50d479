#include "nn/composed.hpp"

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

// Elements with j <= i kept, 0 above the diagonal; without gradients.
Tensor lower_triangle(const Tensor& x) {
  const NoGrad not_recorded;
  const Tensor one = Tensor::full({1, 1}, 1.0, x.dtype(), x.device());
  return x.detach() * read_distance(one, x.size(-1), true);
}

// CoPE: what the tables of the rows hold at the positions that the gates add up to. Gates see the score alone, never
// another encoding's bias.
Tensor scan_term(const ContextualTable& scan, const Tensor& s, const AttentionOperands& in, AttentionTrace* trace) {
  const bool own_operand = scan.gate_operand.defined();
  const Tensor gates = sigmoid(own_operand ? matmul(in.unrotated, transpose(scan.gate_operand, -1, -2), in.scale) : s);
  const Tensor positions = causal_suffix_sum(gates);
  if (trace != nullptr) {
    trace->gates = lower_triangle(gates);
    trace->positions = positions.detach();
  }
  return interpolate_causal(scan.z, positions);
}

Tensor bias_term(const Toeplitz& bias, std::int64_t length) {
  check(bias.bias.size(-1) >= length, "attention", "a toeplitz bias of ", bias.bias.size(-1),
        " distances does not cover ", length, " tokens");
  return read_distance(unsqueeze(bias.bias, 1), length, false);
}

Tensor bias_term(const RowToeplitz& bias, std::int64_t length) { return read_distance(bias.z, length, bias.cap); }

Tensor bias_term(const Dense& bias, std::int64_t) { return bias.bias; }

}  // namespace

Tensor composed_logits(const AttentionOperands& in, const Score& score, AttentionTrace* trace) {
  const std::int64_t length = in.q.size(2);
  const Tensor s = matmul(in.q, transpose(in.k, -1, -2), in.scale);
  Tensor logits = s;
  if (score.scan.has_value()) {
    logits = logits + std::visit([&](const auto& scan) { return scan_term(scan, s, in, trace); }, *score.scan);
  }
  for (const Bias& bias : score.biases) {
    logits = logits + std::visit([&](const auto& shape) { return bias_term(shape, length); }, bias);
  }
  return logits;
}

Tensor composed_attention(const AttentionOperands& in, const Score& score, const Encoding& encoding,
                          const Dropout& dropout, const Pass& pass, AttentionTrace* trace) {
  Tensor weights;
  {
    const Tensor logits = composed_logits(in, score, trace);
    weights = encoding.weights(logits);
    if (!weights.defined()) weights = causal_softmax(logits);
  }
  if (trace != nullptr) trace->weights = weights.detach();
  return matmul(dropout(weights, pass), in.v);
}

}  // namespace tally

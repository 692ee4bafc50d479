#include "nn/attention.hpp"

#include <cmath>

#include "autograd/ops.hpp"
#include "nn/composed.hpp"

namespace tally {

Tensor split_heads(const Tensor& x, std::int64_t heads) {
  return transpose(reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), 1, 2);
}

Tensor merge_heads(const Tensor& x) {
  return reshape(transpose(x, 1, 2), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

Attention::Attention(const Initializer& start, std::int64_t width, std::int64_t heads, double dropout,
                     double output_gain)
    : heads_(heads),
      query_(start.at("query"), width, width),
      key_(start.at("key"), width, width),
      value_(start.at("value"), width, width),
      output_(start.at("output"), width, width, WithBias::yes, output_gain),
      dropout_(start, "weights", dropout) {
  add_child("query", query_);
  add_child("key", key_);
  add_child("value", value_);
  add_child("output", output_);
}

Tensor Attention::forward(const Tensor& x, const Encoding& encoding, const Pass& pass) const {
  const Tensor q = split_heads(query_.forward(x), heads_);
  const Tensor k = split_heads(key_.forward(x), heads_);
  const Tensor v = split_heads(value_.forward(x), heads_);
  const AttentionInput in{x, q, k, v, 1.0 / std::sqrt(static_cast<double>(q.size(3)))};

  AttentionTrace trace;
  Tensor output = encoding.mix(in);
  if (!output.defined()) {
    AttentionOperands operands{q, k, v, q, in.scale};
    encoding.rotate(operands.q, operands.k, operands.v, in);
    Score score;
    encoding.score(in, score);
    output = composed_attention(operands, score, encoding, dropout_, pass, pass.trace != nullptr ? &trace : nullptr);
  }
  if (pass.trace != nullptr) pass.trace->push_back(trace);
  return output_.forward(merge_heads(encoding.finish(output, in)));
}

}  // namespace tally

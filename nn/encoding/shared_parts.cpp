#include "nn/encoding/shared_parts.hpp"

#include <bit>
#include <cmath>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"

namespace tally {

void ContextualGateOptions::visit(OptionVisitor& visitor, bool only_in_gates) {
  visitor.choice("gates", source, {"keys", "sep-keys", "values"},
                 "gates from attention's keys, from separate keys, or from the values");
  if (only_in_gates) visitor.only_with("gates", {"sep-keys", "values"});
  visitor.flag(rotated_query_option, rotated_query,
               "in a combination with a rotation, the position term and gates of separate keys or values use the "
               "rotated q");
}

ContextualGates::ContextualGates(const EncodingSetup& setup, const ContextualGateOptions& options)
    : from_values_(options.source == "values"), rotated_query_(options.rotated_query), key_heads_(setup.key_heads) {
  if (options.source == "sep-keys") {
    const std::int64_t rows = setup.key_heads * setup.head_width;
    weight_ = setup.linear_weight("gate.weight", rows);
    bias_ = setup.linear_bias("gate.bias", rows);
  }
}

Gates ContextualGates::operator()(const AttentionInput& in) const {
  if (from_values_) return {query(in), in.keep("values", in.v, 2)};
  if (!weight_.defined()) return {};
  return {query(in), in.keep("gate keys", split_heads(linear(in.x, weight_, bias_), key_heads_), 2)};
}

ForgetGates::ForgetGates(const EncodingSetup& setup, double sign, double open)
    : sign_(sign),
      weight_(setup.parameter("forget.weight", {setup.heads, setup.width}, Fill::normal(0.02))),
      bias_(setup.parameter("forget.bias", {setup.heads}, Fill::constant(open))) {}

RowColumn ForgetGates::operator()(const AttentionInput& in) const {
  const Tensor opening = linear(in.x, weight_, bias_);
  const Tensor log_forget = negate(softplus(sign_ > 0 ? negate(opening) : opening));  // [B, T, H]
  // In double: L grows with the length, but only differences of neighbours matter.
  const Tensor own = cast(transpose(log_forget, 1, 2), DType::f64);
  const Tensor total = cumsum(in.keep("log forget", own, 2));  // [B, H, keys]
  return {slice(total, 2, in.first, in.keys()), negate(total)};
}

Tensor padded(const Tensor& x, int axis, std::int64_t before, std::int64_t behind) {
  const auto zeros = [&](std::int64_t count) {
    Shape shape = x.shape();
    shape[axis] = count;
    return Tensor::zeros(shape, x.dtype(), x.device());
  };
  std::vector<Tensor> parts;
  if (before > 0) parts.push_back(zeros(before));
  parts.push_back(x);
  if (behind > 0) parts.push_back(zeros(behind));
  return parts.size() == 1 ? x : concat(parts, axis);
}

std::vector<double> alibi_slopes(std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  for (std::int64_t h = 1; h <= power; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power)));
  }
  for (std::int64_t h = 1; h <= heads - power; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(2 * h - 1) / static_cast<double>(2 * power)));
  }
  return slopes;
}

void RemainderOption::visit(OptionVisitor& visitor, std::string_view what) {
  visitor.choice("remainder", value, {"drop", "value", "bias"},
                 formatted("{}: nothing, the token's own value, or a learned vector for each head", what));
}

Remainder::Remainder(const EncodingSetup& setup, const RemainderOption& option) : to_value_(option.value == "value") {
  if (option.value == "bias") {
    bias_ = setup.parameter("remainder", {setup.heads, setup.head_width}, Fill::constant(0));
  }
}

Tensor Remainder::operator()(const AttentionInput& in) const {
  if (to_value_) return repeat_kv(in.value(), in.q.size(1));
  return bias_.defined() ? broadcast_to(unsqueeze(bias_, 1), in.q.shape()) : Tensor();
}

}  // namespace tally

#include "nn/layers/layer_parts.hpp"

#include <vector>

#include "autograd/ops.hpp"
#include "autograd/recompute.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {

void check_normed_heads(const EncodingSetup& setup, std::string_view what) {
  check(setup.head_width > 1, what,
        "a norm over a head width of 1 keeps only the sign, which has no gradient; choose fewer heads, or a "
        "model.head-width of at least 2");
}

TokenShift::TokenShift(const EncodingSetup& setup, std::string_view name, std::int64_t heads)
    : name_(name), weight_(setup.linear_weight(formatted("{}.weight", name), heads)) {}

Tensor TokenShift::operator()(const Tensor& rows, const AttentionInput& in) const {
  const Tensor share = unsqueeze(transpose(sigmoid(linear(in.x, weight_)), 1, 2), 3);  // a [B, heads, T, 1]
  const Tensor previous = slice(padded(in.keep(name_, rows, 2), 2, 1, 0), 2, in.first, in.keys());
  return rows + share * (previous - rows);
}

Tensor convolved(const Tensor& all, const Tensor& weight, std::int64_t queries) {
  const std::int64_t taps = weight.size(2), first = all.size(2) - queries;
  const Tensor from_zeros = padded(all, 2, taps - 1, 0);
  Tensor sum;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const Tensor of_tap = unsqueeze(select(weight, 2, tap), 1);  // [heads, 1, width]
    const Tensor term = slice(from_zeros, 2, first + tap, all.size(2) + tap) * of_tap;
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

HeadNorm::HeadNorm(const EncodingSetup& setup, std::string_view name, std::int64_t heads)
    : weight_(setup.parameter(formatted("{}.weight", name), {heads, setup.head_width}, Fill::constant(1))) {
  check_normed_heads(setup, name);
}

Tensor HeadNorm::operator()(const Tensor& x) const { return apply(x, weight_); }

Tensor HeadNorm::apply(const Tensor& x, const Tensor& weight) { return rms_norm(x) * unsqueeze(weight, 1); }

QueryKeyNorm::QueryKeyNorm(const EncodingSetup& setup)
    : query_(setup, "query-norm", setup.heads), key_(setup, "key-norm", setup.key_heads) {}

void QueryKeyNorm::operator()(Tensor& q, Tensor& k) const {
  q = query_(q);
  k = key_(k);
}

OutputGate::OutputGate(const EncodingSetup& setup, std::string_view name)
    : heads_(setup.heads), weight_(setup.linear_weight(formatted("{}.weight", name), setup.heads * setup.head_width)) {}

Tensor OutputGate::operator()(const Tensor& output, const AttentionInput& in) const {
  return output * split_heads(sigmoid(linear(in.x, weight_)), heads_);
}

Tensor OutputGate::of_normed(const Tensor& output, const HeadNorm& norm, const AttentionInput& in) const {
  const std::vector<Tensor> inputs{output, norm.weight(), split_heads(linear(in.x, weight_), heads_)};
  return recomputed("output gate", inputs, [](const std::vector<Tensor>& x) {
    return std::vector{HeadNorm::apply(x[0], x[1]) * sigmoid(x[2])};
  })[0];
}

}  // namespace tally

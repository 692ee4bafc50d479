#include "nn/encoding/remainder.hpp"

#include "autograd/ops.hpp"
#include "nn/attention/attention.hpp"

namespace tally {

void RemainderOption::visit(OptionVisitor& visitor, std::string_view what) {
  visitor.choice("remainder", value, {"drop", "value", "bias"},
                 concat(what, ": nothing, the token's own value, or a learned vector for each head"));
}

Remainder::Remainder(const EncodingSetup& setup, const RemainderOption& option) : to_value_(option.value == "value") {
  if (option.value == "bias") {
    bias_ = setup.parameter("remainder", {setup.heads, setup.head_width}, Fill::constant(0), Scope::layer);
  }
}

Tensor Remainder::operator()(const AttentionInput& in) const {
  if (to_value_) return repeat_kv(in.value(), in.q.size(1));
  return bias_.defined() ? broadcast_to(unsqueeze(bias_, 1), in.q.shape()) : Tensor();
}

}  // namespace tally

// Stick-breaking attention (arXiv 2410.17980, equations 2 to 4): each key, from the nearest on, takes its share of what
// is left of a stick of length 1. In place of the softmax, strictly causal:
//   A_ij = sigmoid(s_ij) prod_{k=j+1..i-1} (1 - sigmoid(s_ik)) = exp(s_ij - sum_{k=j..i-1} softplus(s_ik)),  j < i
//   o_i  = sum_j A_ij v_j + rem_i r_i,  rem_i = exp(-sum_{k<i} softplus(s_ik)) = 1 - sum_j A_ij
// What remains is dropped (r = 0), goes to the token's own value (r_i = v_i, as in the sum, so shifted with fox-pro),
// or to a learned vector (r_i = b_h). attend-current: the token itself is the first to take its share, sums end at i
// and j <= i.
#include "autograd/ops.hpp"
#include "nn/attention.hpp"
#include "nn/encoding.hpp"

namespace tally {
namespace {

struct StickBreakingOptions final : OptionsOf<StickBreakingOptions> {
  std::string remainder = "drop";
  bool attend_current = false;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("remainder", remainder, {"drop", "value", "bias"},
                   "what is left of the stick: nothing, the token's own value, or a learned vector for each head");
    visitor.flag("attend-current", attend_current, "a token attends to itself too");
  }
};

class StickBreakingEncoding final : public Encoding {
 public:
  StickBreakingEncoding(const EncodingSetup& setup, const StickBreakingOptions& options)
      : attend_current_(options.attend_current), to_value_(options.remainder == "value") {
    if (options.remainder == "bias") {
      bias_ = setup.parameter("remainder", {setup.heads, setup.head_width}, Fill::constant(0), Scope::layer);
    }
  }

  void score(const AttentionInput& in, Score& score) const override {
    StickBreaking scan{attend_current_, {}};
    const Tensor& v = in.value();
    if (to_value_) scan.remainder = for_query_heads(v, in.q.size(1));
    if (bias_.defined()) scan.remainder = broadcast_to(unsqueeze(bias_, 1), in.q.shape());
    score.set_scan(scan);
  }

 private:
  bool attend_current_, to_value_;
  Tensor bias_;  // [H, d]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(stick_breaking, StickBreakingOptions, StickBreakingEncoding,
               "each key, the nearest first, takes its share of what is left",
               "A_ij = sigmoid(s_ij) prod_{k=j+1..i-1} (1 - sigmoid(s_ik)), j < i;  o_i = sum_j A_ij v_j (+ rem_i r_i)",
               "Stick-breaking attention: Tan et al. 2025, arXiv 2410.17980", .scan = ScanOf::weights,
               .also_called = "sba");

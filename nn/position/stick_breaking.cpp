// Stick-breaking attention (arXiv 2410.17980, equations 2 to 4): each key, from the nearest on, takes its share of the
// rest of a stick of length 1. It replaces the softmax and is strictly causal:
//   A_ij = sigmoid(s_ij) prod_{k=j+1..i-1} (1 - sigmoid(s_ik)) = exp(s_ij - sum_{k=j..i-1} softplus(s_ik)),  j < i;
//   o_i  = sum_j A_ij v_j + rem_i r_i,  rem_i = exp(-sum_{k<i} softplus(s_ik)) = 1 - sum_j A_ij.
// The leftover mass is dropped (r = 0), or goes to the token's own value (r_i = v_i) or to a learned vector (r_i =
// b_h). v_i is the value in the sum, so it is shifted with fox-pro. attend-current: the token itself takes the first
// share, so sums end at i and j <= i.
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct StickBreakingOptions final : OptionsOf<StickBreakingOptions> {
  RemainderOption remainder;
  bool attend_current = false;

  void visit(OptionVisitor& visitor) override {
    remainder.visit(visitor, "vector that gets the leftover mass");
    visitor.flag("attend-current", attend_current, "a token attends to itself too");
  }
};

class StickBreakingEncoding final : public Encoding {
 public:
  StickBreakingEncoding(const EncodingSetup& setup, const StickBreakingOptions& options)
      : attend_current_(options.attend_current), remainder_(setup, options.remainder) {}

  bool excludes_own_key() const override { return !attend_current_; }
  void score(const AttentionInput& in, Score& score) const override {
    score.add_score_mod(stick_breaking(attend_current_));
    score.set_softmax_rule({.kind = SoftmaxRule::Kind::exp, .rest = remainder_(in)});
  }

 private:
  bool attend_current_;
  Remainder remainder_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(stick_breaking, StickBreakingOptions, StickBreakingEncoding,
               "from the nearest key on, each takes a share of the remaining weight",
               "A_ij = sigmoid(s_ij) prod_{k=j+1..i-1} (1 - sigmoid(s_ik)), j < i;  o_i = sum_j A_ij v_j (+ rem_i r_i)",
               "Stick-breaking attention: Tan et al. 2025, arXiv 2410.17980", .reads_heads = false,
               .also_called = "sba");

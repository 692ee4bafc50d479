// Forgetting attention (FoX, the Forgetting Transformer, arXiv 2503.02130, section 3): every token decides, from its
// content, how much of the earlier tokens remains.
//   f_t = sigmoid(w_f.x_t + b_f) per head,  l_ij = s_ij + sum_{u=j+1..i} log f_u
// As running sums L_t = sum_{u<=t} log f_u this is L_i - L_j: the bias on the diagonal is 0, and f_j does not act on
// key j itself. CABLE (arXiv 2503.08067) is the same with the other sign, f_t = sigmoid(-(w_f.x_t + b_f)). In its
// released code, scores are not divided by sqrt(d).
#include <cmath>

#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct FoxOptions final : OptionsOf<FoxOptions> {
  std::string sign = "plus";
  std::string score_scale = "sqrt-d";

  void visit(OptionVisitor& visitor) override {
    visitor.choice("sign", sign, {"plus", "minus"}, "f = sigmoid(w.x + b), or of the negative, as in CABLE");
    visitor.choice("score-scale", score_scale, {"sqrt-d", "none"}, "divisor of q.k; none as in CABLE's code");
  }
};

class Fox final : public Encoding {
 public:
  Fox(const EncodingSetup& setup, const FoxOptions& options)
      : forget_(setup, options.sign == "plus" ? 1 : -1),
        factor_(options.score_scale == "none" ? std::sqrt(static_cast<double>(setup.head_width)) : 1) {}

  void score(const AttentionInput& in, Score& score) const override {
    score.biases.emplace_back(forget_(in));
    score.factor *= factor_;
  }

 private:
  ForgetGates forget_;
  double factor_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(fox, FoxOptions, Fox, "forget gates: each token lowers the scores of all before it",
               "f_t = sigmoid(w_f.x_t + b_f);  l_ij = s_ij + sum_{u=j+1..i} log f_u\n"
               "sign = minus: f_t = sigmoid(-(w_f.x_t + b_f));  score-scale = none: s_ij = q_i.k_j",
               "FoX: Lin et al. 2025, arXiv 2503.02130; CABLE: Veisi et al. 2025, arXiv 2503.08067",
               .reads_heads = false, .also_called = "cable");

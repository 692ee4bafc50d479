// Contextual positions with linear biases (arXiv 2405.18719, section 4, CoPE combined with ALiBi), h = 1..H:
//   g_ij = sigmoid(s_ij),  p_ij = sum_{k=j..i} g_ik,  l_ij = s_ij + m_h p_ij;
//   m_h = sign m_0 2^(1-h), or sign times ALiBi's slopes, or learned from 0.
// The paper prints "+" with positive slopes, which raises FAR keys, the opposite of ALiBi (nn/position/errata.md). So
// the sign is an option. p is not clamped by default; with p-max P the term is m_h min(p_ij, P): beyond P it is the
// same number for the whole row.
#include <cmath>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct CopeAlibiOptions final : OptionsOf<CopeAlibiOptions> {
  std::string slopes = "halving";
  std::string sign = "plus";
  double first_slope = 1;
  std::int64_t p_max = 0;
  ContextualGateOptions gates;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("slopes", slopes, {"halving", "alibi", "learned"},
                   "half the previous head's slope, ALiBi's slopes, or a parameter per layer and head, initially 0");
    visitor.only_with("slopes", {"halving", "alibi"});
    visitor.choice("sign", sign, {"plus", "minus"},
                   "sign of fixed slopes: plus (as in the paper) favours far keys, minus favours near keys");
    visitor.only_with("slopes", {"halving"});
    visitor.real("first-slope", first_slope, "absolute value of the first head's slope with slopes = halving", above(0),
                 1000);
    visitor.integer("p-max", p_max, "largest position P; larger positions count as P; 0: no limit", 0, 1 << 16);
    gates.visit(visitor, true);
  }
};

// m [H]
std::vector<double> fixed_slopes(const CopeAlibiOptions& options, std::int64_t heads) {
  std::vector<double> slopes = alibi_slopes(heads);
  if (options.slopes == "halving") {
    for (std::size_t h = 0; h < slopes.size(); ++h)
      slopes[h] = options.first_slope * std::exp2(-static_cast<double>(h));
  }
  for (double& slope : slopes) slope *= options.sign == "minus" ? -1 : 1;
  return slopes;
}

class CopeAlibi final : public Encoding {
 public:
  CopeAlibi(const EncodingSetup& setup, const CopeAlibiOptions& options) : gates_(setup, options.gates) {
    const Shape shape{setup.heads};
    slopes_ = options.slopes == "learned"
                  ? setup.parameter("slopes", shape, Fill::constant(0))
                  : Tensor::from(fixed_slopes(options, setup.heads), shape, setup.device).to(setup.dtype);
    if (options.p_max == 0) return;
    const auto number = [](std::int64_t p) { return static_cast<double>(p); };
    positions_ = setup.constants->of(number, 0, options.p_max + 1, setup.dtype, setup.device);
  }

  void score(const AttentionInput& in, Score& score) const override {
    if (!positions_.defined()) return score.add_score_mod(contextual_slope(slopes_, gates_(in)));
    // A straight line as a table, whose last entry is the largest position.
    const Shape shape{in.q.size(0), in.q.size(1), in.q.size(2), positions_.size(0)};
    const Tensor line = unsqueeze(unsqueeze(slopes_, 1), 2) * positions_;  // [H, 1, P+1]
    score.add_score_mod(contextual_table(broadcast_to(line, shape), gates_(in)));
  }

 private:
  ContextualGates gates_;
  Tensor slopes_;     // [H]
  Tensor positions_;  // 0..P; undefined where p has no limit
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(cope_alibi, CopeAlibiOptions, CopeAlibi,
               "contextual positions with one slope per head instead of a table",
               "g_ij = sigmoid(s_ij);  p_ij = sum_{k=j..i} g_ik;  l_ij = s_ij + m_h p_ij\n"
               "m_h = sign m_0 2^(1-h), h from 1; or sign times ALiBi's; or learned;  p-max: m_h min(p_ij, P)",
               "CoPE with ALiBi: Golovneva et al. 2024, arXiv 2405.18719");

// Gated attention (arXiv 2505.06708): the output of each head times a gate of the query's token, before the output
// projection. So a query that found nothing can suppress its output.
//   o_i <- o_i sigmoid(W x_i + b),  W with a row for each number of a head, or for each head
#include "autograd/ops.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

struct GatedOptions final : OptionsOf<GatedOptions> {
  std::string per = "element";

  void visit(OptionVisitor& visitor) override {
    visitor.choice("per", per, {"element", "head"}, "one gate per element of a head's output, or one per head");
  }
};

class Gated final : public Encoding {
 public:
  Gated(const EncodingSetup& setup, const GatedOptions& options) : heads_(setup.heads) {
    const std::int64_t gates = setup.heads * (options.per == "head" ? 1 : setup.head_width);
    weight_ = setup.linear_weight("gate.weight", gates);
    bias_ = setup.linear_bias("gate.bias", gates);
  }

  Tensor finish(const Tensor& output, const AttentionInput& in) const override {
    return output * split_heads(sigmoid(linear(in.x, weight_, bias_)), heads_);
  }

 private:
  std::int64_t heads_;
  Tensor weight_, bias_;  // W [H d, D] or [H, D], b of the same height
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(gated, GatedOptions, Gated, "a gate on the output of every head",
               "o_i <- o_i sigmoid(W x_i + b);  W [H d, D], or [H, D] with per = head",
               "gated attention: Qiu et al. 2025, arXiv 2505.06708");

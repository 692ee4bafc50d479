// Sigmoid attention (arXiv 2409.04431): every weight is independent, without a sum over the row.
//   a_ij = sigmoid(l_ij - ln n),  n the length of the training texts, or the number of unmasked keys of query i.
// The offset makes a row's weights sum to about 1 if its logits are about 0.
#include <cmath>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct SigmoidOptions final : OptionsOf<SigmoidOptions> {
  std::int64_t length = 512;
  bool visible = false;
  RemainderOption remainder;

  void visit(OptionVisitor& visitor) override {
    visitor.only_with("visible", {"false"});
    visitor.integer("length", length, "n, the length of the training texts in tokens", 1, 1 << 24);
    visitor.flag("visible", visible, "n is the number of unmasked keys of the query");
    remainder.visit(visitor, "vector that gets the leftover mass, 1 minus the sum of weights");
  }
};

class SigmoidEncoding final : public Encoding {
 public:
  SigmoidEncoding(const EncodingSetup& setup, const SigmoidOptions& options)
      : visible_(options.visible),
        offset_(visible_ ? 0 : std::log(static_cast<double>(options.length))),
        remainder_(setup, options.remainder) {}

  void score(const AttentionInput& in, Score& score) const override {
    score.set_softmax_rule({.kind = SoftmaxRule::Kind::sigmoid, .offset = offset_, .rest = remainder_(in)});
    if (!visible_) return;
    const auto offset = [](std::int64_t n) { return -std::log(static_cast<double>(n)); };
    const Shape shape{in.q.size(0), in.q.size(1), in.q.size(2)};
    score.biases.push_back(RowColumn{broadcast_to(in.keys_seen(offset, DType::f64), shape), {}});
  }

 private:
  bool visible_;
  double offset_;
  Remainder remainder_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(sigmoid, SigmoidOptions, SigmoidEncoding, "each weight is the logistic function of its logit",
               "a_ij = sigmoid(l_ij - ln n);  n = length, or the number of unmasked keys of query i",
               "sigmoid attention: Ramapuram et al. 2024, arXiv 2409.04431");

// Softpick (arXiv 2504.20966): a softmax that can be exactly 0, and whose rows need not sum to 1.
//   a_ij = relu(e^l_ij - 1) / (sum_k |e^l_ik - 1| + 1e-8).
// A key with l <= 0 gets no weight, and still reduces the weights of the others.
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct SoftpickOptions final : OptionsOf<SoftpickOptions> {
  RemainderOption remainder;

  void visit(OptionVisitor& visitor) override {
    remainder.visit(visitor, "vector that gets the leftover mass, 1 minus the sum of weights");
  }
};

class SoftpickEncoding final : public Encoding {
 public:
  SoftpickEncoding(const EncodingSetup& setup, const SoftpickOptions& options) : remainder_(setup, options.remainder) {}

  void score(const AttentionInput& in, Score& score) const override {
    score.set_softmax_rule({.kind = SoftmaxRule::Kind::softpick, .rest = remainder_(in)});
  }

 private:
  Remainder remainder_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(softpick, SoftpickOptions, SoftpickEncoding, "a rectified softmax: weights can be exactly 0",
               "a_ij = relu(e^l_ij - 1) / (sum_k |e^l_ik - 1| + 1e-8)", "softpick: Zuhri et al. 2025, arXiv 2504.20966",
               .reads_heads = false);

// A penalty on the distance, one learned strength per head:  l_ij = s_ij - r_h (i-j)
#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

struct DecayOptions final : OptionsOf<DecayOptions> {
  double start = 0.1;
  void visit(OptionVisitor& visitor) override { visitor.real("start", start, "strength r of every head at the start"); }
};

class Decay final : public Encoding {
 public:
  Decay(const EncodingSetup& setup, const DecayOptions& given)
      : rate_(setup.parameter("rate", {setup.heads}, Fill::constant(given.start), Scope::layer)) {}

  void score(const AttentionInput& in, Score& score) const override {
    score.biases.push_back(Toeplitz{negate(unsqueeze(rate_, 1) * in.distances())});
  }

 private:
  Tensor rate_;  // r [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(decay, DecayOptions, Decay, "a learned penalty on the distance", "l_ij = s_ij - r_h (i-j)", "none yet");

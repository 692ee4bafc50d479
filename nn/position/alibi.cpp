// Attention with linear biases (ALiBi, arXiv 2108.12409, section 3), slopes of nn/encoding/shared_parts.hpp:
//   l_ij = s_ij - m_h (i-j)
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

struct AlibiOptions final : OptionsOf<AlibiOptions> {
  bool learned = false;

  void visit(OptionVisitor& visitor) override {
    visitor.flag("learned", learned, "slopes are parameters of each layer and start at the fixed ones");
  }
};

class Alibi final : public Encoding {
 public:
  Alibi(const EncodingSetup& setup, const AlibiOptions& options) {
    const std::vector<double> slopes = alibi_slopes(setup.heads);
    slopes_ = options.learned ? setup.parameter("slopes", {setup.heads}, Fill::list(slopes))
                              : Tensor::from(slopes, {setup.heads}, setup.device).to(setup.dtype);
  }

  void score(const AttentionInput& in, Score& score) const override {
    if (in.has_random_positions()) {
      const Tensor m = cast(unsqueeze(slopes_, 1), DType::f64);
      const Tensor penalty = broadcast_to(unsqueeze(m * in.positions(), 0), {in.x.size(0), m.size(0), in.keys()});
      score.biases.push_back(RowColumn{negate(penalty), penalty});
      return;
    }
    score.biases.push_back(Toeplitz{negate(unsqueeze(slopes_, 1) * in.distances())});
  }

 private:
  Tensor slopes_;  // [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(alibi, AlibiOptions, Alibi, "a penalty that grows with the distance, steeper for some heads",
               "l_ij = s_ij - m_h (i-j);  m_h = 2^(-8h/H), h from 1\n"
               "H no power of two: with H0 the largest one below H, the H0 slopes, then the 1st, 3rd, ... of the 2 H0",
               "ALiBi: Press et al. 2022, arXiv 2108.12409", .reads_heads = false, .companion = true);

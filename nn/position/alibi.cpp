// Attention with linear biases (ALiBi, arXiv 2108.12409, section 3), h = 1..H:
//   l_ij = s_ij - m_h (i-j)
//   m_h = 2^(-8h/H) for H a power of two; else, with H0 the largest power of two below H, the H0 slopes, then the 1st,
//   3rd, 5th, ... of the 2 H0 slopes (the released code's rule)
#include <bit>
#include <cmath>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding.hpp"

namespace tally {
namespace {

struct AlibiOptions final : OptionsOf<AlibiOptions> {
  bool learned = false;

  void visit(OptionVisitor& visitor) override {
    visitor.flag("learned", learned, "slopes are parameters of each layer and start at the fixed ones");
  }
};

std::vector<double> alibi_slopes(std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  for (std::int64_t h = 1; h <= power; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power)));
  }
  for (std::int64_t h = 1; h <= heads - power; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(2 * h - 1) / static_cast<double>(2 * power)));
  }
  return slopes;
}

class Alibi final : public Encoding {
 public:
  Alibi(const EncodingSetup& setup, const AlibiOptions& options) {
    const std::vector<double> slopes = alibi_slopes(setup.heads);
    slopes_ = options.learned ? setup.parameter("slopes", {setup.heads}, Fill::list(slopes), Scope::layer)
                              : Tensor::from(slopes, {setup.heads}, setup.device).to(setup.dtype);
  }

  void score(const AttentionInput& in, Score& score) const override {
    const std::int64_t length = in.keys();
    std::vector<double> minus_distance;
    for (std::int64_t n = 0; n < length; ++n) minus_distance.push_back(-static_cast<double>(n));
    const Tensor row = Tensor::from(minus_distance, {1, length}, in.q.device()).to(in.q.dtype());
    score.biases.push_back(Toeplitz{unsqueeze(slopes_, 1) * row});
  }

 private:
  Tensor slopes_;  // [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(alibi, AlibiOptions, Alibi, "a penalty that grows with the distance, steeper for some heads",
               "l_ij = s_ij - m_h (i-j);  m_h = 2^(-8h/H), h from 1", "ALiBi: Press et al. 2022, arXiv 2108.12409");

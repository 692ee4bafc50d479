// Kernelised relative positions (KERPLE, arXiv 2205.09921), r1, r2 > 0 of each head:
//   log    l_ij = s_ij - r1 ln(1 + r2 (i-j))
//   power  l_ij = s_ij - r1 (i-j)^r2,  r2 <= 2,  0^r2 = 0 with gradient 0
// Both stay at least 0.01: they are clamped after each update (the released code's rule).
#include <cmath>
#include <limits>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

constexpr double least = 0.01, largest_exponent = 2;

struct KerpleOptions final : OptionsOf<KerpleOptions> {
  std::string kernel = "log";

  void visit(OptionVisitor& visitor) override {
    visitor.choice("kernel", kernel, {"log", "power"}, "how the penalty grows with the distance");
  }
};

// ln n, and whether n is above 0.
double logarithm(std::int64_t n) { return n > 0 ? std::log(static_cast<double>(n)) : 0; }
double above_zero(std::int64_t n) { return n > 0 ? 1 : 0; }

class Kerple final : public Encoding {
 public:
  Kerple(const EncodingSetup& setup, const KerpleOptions& options) : power_(options.kernel == "power") {
    scale_ = setup.parameter("r1", {setup.heads}, Fill::uniform(0, power_ ? 1 : 2));
    shape_ = setup.parameter("r2", {setup.heads}, Fill::uniform(0, power_ ? 2 : 1));
  }

  void project() const override {
    constexpr double none = std::numeric_limits<double>::max();
    clamp_parameter(scale_, least, none);
    clamp_parameter(shape_, least, power_ ? largest_exponent : none);
  }

  void score(const AttentionInput& in, Score& score) const override {
    const Tensor r1 = unsqueeze(scale_, 1), r2 = unsqueeze(shape_, 1);
    const Tensor kernel =
        power_ ? exp(r2 * in.distances(logarithm)) * in.distances(above_zero) : log(r2 * in.distances() + 1.0);
    score.biases.push_back(Toeplitz{negate(r1 * kernel)});
  }

 private:
  bool power_;
  Tensor scale_, shape_;  // r1, r2 [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(kerple, KerpleOptions, Kerple, "a learned penalty: a logarithm or a power of the distance",
               "log: l_ij = s_ij - r1 ln(1 + r2 (i-j));  power: l_ij = s_ij - r1 (i-j)^r2, r2 <= 2, 0^r2 = 0\n"
               "r1, r2 per head, clamped to at least 0.01 after each update",
               "KERPLE: Chi et al. 2022, arXiv 2205.09921", .reads_heads = false);

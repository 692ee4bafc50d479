// The prior of the Bayesian attention mechanism (BAM, arXiv 2505.22842), a generalised normal distribution of the
// distance, per head:
//   l_ij = s_ij - e^a_h (|i-j - μ_h| + 1e-5)^b_h,  μ_h = e^m_h - e^-m_h
// b_h starts at 0, where all distances have the same prior; 1 gives a slope as in alibi. μ is 0 unless it is learned.
// In the released code, m has the other sign. The paper's experiments combine it with scalable softmax: bam+ssmax with
// ssmax.whole.
#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

constexpr double least_distance = 1e-5;

struct BamOptions final : OptionsOf<BamOptions> {
  bool location = false;
  double shape = 0;

  void visit(OptionVisitor& visitor) override {
    visitor.flag("location", location, "learn the most likely distance μ of each head; it starts at 0");
    visitor.real("shape", shape, "exponent b of every head at the start", -2, 2);
  }
};

class Bam final : public Encoding {
 public:
  Bam(const EncodingSetup& setup, const BamOptions& options) {
    const auto make = [&](std::string_view name, double start) {
      return setup.parameter(name, {setup.heads}, Fill::constant(start));
    };
    scale_ = make("scale", 0);
    shape_ = make("shape", options.shape);
    if (options.location) location_ = make("location", 0);
  }

  void score(const AttentionInput& in, Score& score) const override {
    Tensor from_peak = in.distances();
    if (location_.defined()) {
      const Tensor m = cast(location_, DType::f64);  // near 0, the two exponentials nearly cancel
      from_peak = abs(from_peak - unsqueeze(cast(exp(m) - exp(negate(m)), in.dtype()), 1));
    }
    const Tensor power = unsqueeze(shape_, 1) * log(from_peak + least_distance);
    score.biases.push_back(Toeplitz{negate(exp(unsqueeze(scale_, 1) + power))});
  }

 private:
  Tensor scale_, shape_, location_;  // a, b, m [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(bam, BamOptions, Bam, "a learned power of the distance, or of the distance from a peak",
               "l_ij = s_ij - e^a_h (|i-j - μ_h| + 1e-5)^b_h;  location: μ_h = e^m_h - e^-m_h, else 0",
               "BAM: Bianchessi et al. 2025, arXiv 2505.22842", .reads_heads = false);

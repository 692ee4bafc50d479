// Scalable softmax (SSMax, arXiv 2501.19399): scores grow with the logarithm of the number of keys, so that a row does
// not flatten as it gets longer.
//   l_ij = (c_h ln n_i + b_h) s_ij,  n_i the number of keys that query i sees (i+1, or fewer in a window)
// It acts on q, so biases are not scaled, and what sees the score (gates) sees it scaled. Start value: reprints of the
// paper differ (0.43, 0.168).
#include <cmath>

#include "autograd/ops.hpp"
#include "nn/encoding.hpp"

namespace tally {
namespace {

struct SsmaxOptions final : OptionsOf<SsmaxOptions> {
  double start = 0.43;
  bool bias = false;

  void visit(OptionVisitor& visitor) override {
    visitor.real("start", start, "c of every head at the start");
    visitor.flag("bias", bias, "with b, learned, from 0");
  }
};

class Ssmax final : public Encoding {
 public:
  Ssmax(const EncodingSetup& setup, const SsmaxOptions& options)
      : factor_(setup.parameter("factor", {setup.heads}, Fill::constant(options.start), Scope::layer)) {
    if (options.bias) bias_ = setup.parameter("bias", {setup.heads}, Fill::constant(0), Scope::layer);
  }

  void rotate(Tensor& q, Tensor&, Tensor&, const AttentionInput& in) const override {
    const Tensor log_seen = in.keys_seen([](std::int64_t n) { return std::log(static_cast<double>(n)); });
    Tensor by_row = unsqueeze(factor_, 1) * log_seen;  // [H, T]
    if (bias_.defined()) by_row = by_row + unsqueeze(bias_, 1);
    q = q * unsqueeze(by_row, 2);
  }

 private:
  Tensor factor_, bias_;  // c, b [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(ssmax, SsmaxOptions, Ssmax, "scores that grow with the logarithm of the number of keys",
               "l_ij = (c_h ln n_i + b_h) s_ij;  n_i = number of keys that query i sees;  c learned, from 0.43",
               "scalable softmax: Nakanishi 2025, arXiv 2501.19399");

// Scalable softmax (SSMax, arXiv 2501.19399): scores grow with the logarithm of the number of keys, so that a row does
// not flatten as it gets longer.
//   l_ij = (c_h ln n_i + b_h) s_ij,  n_i the number of unmasked keys of query i (i+1, or fewer in a window).
// The factor multiplies q, so biases are not scaled, and gates use the scaled score. With `whole` it multiplies the sum
// of the score and all terms of a combination, and gates use the unscaled score. Initial value: reprints of the paper
// differ (0.43, 0.168).
#include <array>
#include <cmath>
#include <string_view>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

struct SsmaxOptions final : OptionsOf<SsmaxOptions> {
  static constexpr std::array<std::string_view, 1> score_flags{"whole"};
  double start = 0.43;
  bool bias = false;
  bool whole = false;

  void visit(OptionVisitor& visitor) override {
    visitor.real("start", start, "initial c of every head", -100, 100);
    visitor.flag("bias", bias, "add a learned b, initially 0");
    visitor.flag("whole", whole,
                 "multiply the whole logit with its biases, not only q; a combination is then materialised");
  }
};

class Ssmax final : public Encoding {
 public:
  Ssmax(const EncodingSetup& setup, const SsmaxOptions& options)
      : whole_(options.whole), factor_(setup.parameter("factor", {setup.heads}, Fill::constant(options.start))) {
    if (options.bias) bias_ = setup.parameter("bias", {setup.heads}, Fill::constant(0));
  }

  void rotate(Tensor& q, Tensor&, Tensor&, const AttentionInput& in) const override {
    if (!whole_) q = q * unsqueeze(by_row(in), 2);
  }
  void score(const AttentionInput& in, Score& score) const override {
    if (whole_) score.row_factor = unsqueeze(by_row(in), 0);
  }

 private:
  // [H, T]
  Tensor by_row(const AttentionInput& in) const {
    const Tensor log_seen = in.keys_seen([](std::int64_t n) { return std::log(static_cast<double>(n)); });
    const Tensor grown = unsqueeze(factor_, 1) * log_seen;
    return bias_.defined() ? grown + unsqueeze(bias_, 1) : grown;
  }

  bool whole_;
  Tensor factor_, bias_;  // c, b [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(ssmax, SsmaxOptions, Ssmax, "scores that grow with the logarithm of the number of keys",
               "l_ij = (c_h ln n_i + b_h) s_ij;  n_i = number of unmasked keys of query i;  c learned, initially 0.43\n"
               "whole: the same factor for l_ij = s_ij + all biases, with gates from s_ij;\n"
               "a combination then needs several times B H T² numbers a layer",
               "scalable softmax: Nakanishi 2025, arXiv 2501.19399");

// Rotary positions that are counted by gates: q and k are rotated as in RoPE (arXiv 2104.09864), but by the contextual
// position of the pair (CoPE, arXiv 2405.18719) instead of the distance. So the angle cannot be split into one of the
// query and one of the key. In r/2 planes with q_i = (a, b), k_j = (a', b') of each:
//   g_ij = sigmoid(s_ij),  p_ij = sum_{k=j..i} g_ik       or from j+1 on, without own;
//   l_ij = s_ij + 1/sqrt(d) sum_n [(a a' + b b') (cos p_ij θ_n - 1) + (a b' - b a') sin p_ij θ_n],
//   θ_n = base^(-2n/r), n = 0 .. r/2-1.
// This is the product of q and k with these planes rotated by p_ij θ_n. With all gates 1 and without own it is RoPE. A
// combination of this library, not published; nearest: Co-RoPE, whose positions are differences of two prefixes.
// Every pair has its own angles, which tiles do not support, so attention is materialised. One plane at a time is in
// memory, and backward recomputes it.
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/recompute.hpp"
#include "autograd/score_mod_tensors.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/rotary.hpp"
#include "nn/encoding/shared_parts.hpp"

namespace tally {
namespace {

// Computes the positions only; ContextualRotary::turned changes the scores.
struct Steps {
  static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit); }
  static constexpr auto bias(const auto&) { return 0; }
};
struct StepsFromNext {
  static constexpr auto gate_exclusive(const auto& p) { return sigmoid(p.gate_logit); }
  static constexpr auto bias(const auto&) { return 0; }
};
template <class Mod>
constexpr ScoreMod not_compiled{.name = "contextual-rotary",
                                .traits = attention::traits_of<Mod>,
                                .loops = nullptr,
                                .loops_v4 = nullptr,
                                .loops_v3 = nullptr,
                                .cuda_host = nullptr,
                                .cuda = nullptr,
                                .on_tensors = &score_mod_on_tensors<Mod>};

struct ContextualRotaryOptions final : OptionsOf<ContextualRotaryOptions> {
  std::string layout = "half";
  double base = 10000;
  std::int64_t rotary_dims = 0;
  bool own = true;
  ContextualGateOptions gates;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("layout", layout, {"half", "interleaved"}, "dimensions of a plane: i and i + r/2, or 2i and 2i+1");
    visitor.real("base", base, "base of the geometric sequence of angles", 1);
    visitor.integer("rotary-dims", rotary_dims, "r, rotated dimensions of a head, even; 0: all", 0, 1 << 16);
    visitor.flag("own", own, "a key's position includes its own gate");
    gates.visit(visitor, true);
  }
};

class ContextualRotary final : public Encoding {
 public:
  ContextualRotary(const EncodingSetup& setup, const ContextualRotaryOptions& options)
      : dims_(rotated_dims("contextual-rotary", options.rotary_dims, setup.head_width)),
        interleaved_(options.layout == "interleaved"),
        mod_(options.own ? &not_compiled<Steps> : &not_compiled<StepsFromNext>),
        angles_(rotary_angles("contextual-rotary", dims_, options.base)),
        gates_(setup, options.gates) {}

  void score(const AttentionInput& in, Score& score) const override {
    AppliedScoreMod pair{.mod = mod_, .gates = gates_(in)};
    const Tensor& q = in.query(true);
    const Tensor k = repeat_kv(in.key(), q.size(1));
    pair.materialised_logit = [this, q, k](const Tensor& s, const Tensor& sum, double scale) {
      Tensor logit = s;
      for (std::size_t n = 0; n < angles_.size(); ++n) {
        logit = logit + turned(sum, q, k, static_cast<std::int64_t>(n)) * scale;
      }
      return logit;
    };
    score.add_score_mod(pair);
  }

 private:
  // The change of q_i.k_j by rotating plane n by p_ij θ_n: [B, H, T, T].
  Tensor turned(const Tensor& sum, const Tensor& q, const Tensor& k, std::int64_t n) const {
    const std::int64_t step = interleaved_ ? 1 : dims_ / 2, first = interleaved_ ? 2 * n : n, second = first + step;
    const auto column = [](const Tensor& x, std::int64_t dim) { return slice(x, 3, dim, dim + 1); };
    const std::vector<Tensor> inputs{sum, column(q, first), column(q, second), transpose(column(k, first), 2, 3),
                                     transpose(column(k, second), 2, 3)};
    return recomputed("contextual-rotary", inputs,
                      [angle = angles_[static_cast<std::size_t>(n)]](const std::vector<Tensor>& x) {
                        const Tensor turn = x[0] * angle;
                        const Tensor along = x[1] * x[3] + x[2] * x[4], across = x[1] * x[4] - x[2] * x[3];
                        return std::vector<Tensor>{along * (cos(turn) + -1.0) + across * sin(turn)};
                      })[0];
  }

  std::int64_t dims_;  // r
  bool interleaved_;
  const ScoreMod* mod_;
  std::vector<double> angles_;  // θ, r/2 of them
  ContextualGates gates_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(contextual_rotary, ContextualRotaryOptions, ContextualRotary,
               "rotary, by contextual positions: gates decide which tokens count",
               "g_ij = sigmoid(s_ij);  p_ij = sum_{k=j..i} g_ik;  in plane n q_i = (a, b), k_j = (a', b')\n"
               "l_ij = s_ij + 1/sqrt(d) sum_n [(a a' + b b') (cos p_ij θ_n - 1) + (a b' - b a') sin p_ij θ_n];  θ_n = "
               "base^(-2n/r)\n"
               "materialised: saves about 4 B H T² numbers a layer, in backward 8 more for one layer at a time",
               "CoPE's positions (arXiv 2405.18719) in RoPE's planes (arXiv 2104.09864), not published",
               .needs_head_width = true);

// Rotary positions that are counted by gates: q and k are rotated as in RoPE (arXiv 2104.09864), but by the contextual
// position of the pair (CoPE, arXiv 2405.18719) instead of the distance. So the angle cannot be split into one of the
// query and one of the key. In r/2 planes with q_i = (a, b), k_j = (a', b') of each:
//   g_ij = sigmoid(s_ij),  p_ij = sum_{k=j..i} g_ik       or from j+1 on, without own;
//   l_ij = s_ij + 1/sqrt(d) sum_n [(a a' + b b') (cos p_ij θ_n - 1) + (a b' - b a') sin p_ij θ_n],
//   θ_n = base^(-2n/r), n = 0 .. r/2-1.
// This is the product of q and k with these planes rotated by p_ij θ_n. With all gates 1 and without own it is RoPE. A
// combination of this library, not published; nearest: Co-RoPE, whose positions are differences of two prefixes.
#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Turns {
  static constexpr auto gate(const auto& p) { return sigmoid(p.other); }
  static constexpr auto term(const auto& p) {
    const auto angle = p.sum * of_channel<0>(p);
    const auto along = of_query<0>(p) * of_key<0>(p) + of_query<1>(p) * of_key<1>(p);
    const auto across = of_query<0>(p) * of_key<1>(p) - of_query<1>(p) * of_key<0>(p);
    return along * (cos(angle) - 1) + across * sin(angle);
  }
  static constexpr auto logit(const auto& p) { return p.s + p.terms; }
};
struct TurnsFromOwn : Turns {
  static constexpr PairNeeds needs{
      .scan = true, .adds = true, .other = true, .channels = {.of_query = 2, .of_key = 2, .of_channel = 1}};
};
struct TurnsFromNext : Turns {
  static constexpr PairNeeds needs{.scan = true,
                                   .own = false,
                                   .adds = true,
                                   .other = true,
                                   .channels = {.of_query = 2, .of_key = 2, .of_channel = 1}};
};

}  // namespace
}  // namespace tally

TALLY_PAIR(contextual_rotary, TurnsFromOwn);
TALLY_PAIR(contextual_rotary_from_next, TurnsFromNext);

#ifndef TALLY_PAIR_ONLY

#include <string>
#include <vector>

#include "core/error.hpp"
#include "nn/encoding.hpp"
#include "nn/gates.hpp"
#include "nn/rotary.hpp"

namespace tally {
namespace {

struct ContextualRotaryOptions final : OptionsOf<ContextualRotaryOptions> {
  static constexpr auto beside_rotations = ContextualGateOptions::beside_rotations;
  std::string layout = "half";
  double base = 10000;
  std::int64_t rotary_dims = 0;
  bool own = true;
  ContextualGateOptions gates;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("layout", layout, {"half", "interleaved"},
                   "which dims form a plane: i with i + r/2, or 2i with 2i+1");
    visitor.real("base", base, "of the geometric sequence of angles", 1);
    visitor.integer("rotary-dims", rotary_dims, "dims r that are rotated, even; 0 for the whole head", 0, 1 << 16);
    visitor.flag("own", own, "whether a position takes the gate of the key itself in");
    gates.visit(visitor);
  }
  void validate() const override { gates.refuse_idle_query("contextual-rotary"); }
};

std::int64_t rotated_dims(const EncodingSetup& setup, const ContextualRotaryOptions& options) {
  const std::int64_t dims = options.rotary_dims == 0 ? setup.head_width : options.rotary_dims;
  check(dims % 2 == 0, "contextual-rotary", "planes need an even number of dims, but ", dims, " are to be rotated");
  check(dims <= setup.head_width, "contextual-rotary", "rotary-dims ", dims, " is more than the head width ",
        setup.head_width);
  return dims;
}

class ContextualRotary final : public Encoding {
 public:
  ContextualRotary(const EncodingSetup& setup, const ContextualRotaryOptions& options)
      : dims_(rotated_dims(setup, options)),
        interleaved_(options.layout == "interleaved"),
        policy_(options.own ? &pair_contextual_rotary : &pair_contextual_rotary_from_next),
        gates_(setup, options.gates) {
    const std::vector<RotaryPlane> planes = rotary_planes(dims_, options.base);
    angles_ = table_of(std::ssize(planes), 1, setup.dtype, setup.device, [&](std::int64_t n, std::int64_t) {
                return planes[static_cast<std::size_t>(n)].angle;
              }).reshape_view({std::ssize(planes)});
  }

  void score(const AttentionInput& in, Score& score) const override {
    Pair pair{.policy = policy_, .other = gates_(in)};
    pair.channels = {planes_of(in.query(true)) * in.scale, planes_of(in.all_keys()), angles_, true};
    score.set_scan(pair);
  }

 private:
  // x [B, heads, tokens, d] -> [B, heads, tokens, r]: the a of all planes, then the b.
  Tensor planes_of(const Tensor& x) const {
    const Tensor turned = slice(x, 3, 0, dims_);
    if (!interleaved_) return turned;
    const Shape planes{x.size(0), x.size(1), x.size(2), dims_ / 2, 2}, all{x.size(0), x.size(1), x.size(2), dims_};
    return reshape(transpose(reshape(turned, planes), 3, 4), all);
  }

  std::int64_t dims_;  // r
  bool interleaved_;
  const PairPolicy* policy_;
  Tensor angles_;  // θ [r/2]
  ContextualGates gates_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(contextual_rotary, ContextualRotaryOptions, ContextualRotary,
               "rotary, by positions of pairs: gates decide what counts as a step",
               "g_ij = sigmoid(s_ij);  p_ij = sum_{k=j..i} g_ik;  in plane n q_i = (a, b), k_j = (a', b')\n"
               "l_ij = s_ij + 1/sqrt(d) sum_n [(a a' + b b') (cos p_ij θ_n - 1) + (a b' - b a') sin p_ij θ_n];  θ_n = "
               "base^(-2n/r)",
               "CoPE's positions (arXiv 2405.18719) in RoPE's planes (arXiv 2104.09864), not published", .scans = true,
               .by_policy = true);

#endif

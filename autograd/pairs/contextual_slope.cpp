// CoPE with ALiBi (arXiv 2405.18719, section 4): one slope a head times the contextual position.
#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Slope {
  static constexpr PairNeeds needs{.scan = true, .adds = true, .other = true, .heads = 1};
  static constexpr auto gate(const auto& p) { return sigmoid(p.other); }
  static constexpr auto logit(const auto& p) { return p.s + head<0>(p) * p.sum; }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(contextual_slope, Slope);

#ifndef TALLY_PAIR_ONLY

#include "autograd/score.hpp"

namespace tally {

Pair contextual_slope(const Tensor& slope, const Gates& gates) {
  return {&pair_contextual_slope, {}, unsqueeze(slope, 1), gates};
}

}  // namespace tally

#endif

// CoPE (arXiv 2405.18719, equations 3 to 5): the entry of a query's table at the contextual position is added to its
// score.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

struct Table {
  static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit); }
  static constexpr auto bias(const auto& p) { return p.entry; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(contextual_table, Table);

#ifndef TALLY_SCORE_MOD_ONLY

#include "autograd/score.hpp"

namespace tally {

AppliedScoreMod contextual_table(const Tensor& z, const Gates& gates) {
  return {&score_mod_contextual_table, {}, {}, gates, z};
}

}  // namespace tally

#endif

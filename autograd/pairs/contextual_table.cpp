// CoPE (arXiv 2405.18719, equations 3 to 5): the entry of a query's table at the contextual position is added to its
// score.
#include "autograd/pair.hpp"

namespace tally {
namespace {

struct Table {
  static constexpr PairNeeds needs{
      .scan = true, .adds = true, .other = true, .table = true, .settles = true, .adds_entry = true};
  static constexpr auto gate(const auto& p) { return sigmoid(p.other); }
  static constexpr auto logit(const auto& p) { return p.s + p.entry; }
};

}  // namespace
}  // namespace tally

TALLY_PAIR(contextual_table, Table);

#ifndef TALLY_PAIR_ONLY

#include "autograd/score.hpp"

namespace tally {

Pair contextual_table(const Tensor& z, const Gates& gates) { return {&pair_contextual_table, {}, {}, gates, z}; }

}  // namespace tally

#endif

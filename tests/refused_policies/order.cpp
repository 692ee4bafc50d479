// A policy whose needs stand in another order than those of PairNeeds: check.py compiles this file as the build does
// and asks the compiler.
#include "autograd/pair.hpp"

namespace {

using tally::head;
using tally::PairNeeds;
using tally::row;

struct WrongOrder {
  static constexpr PairNeeds needs{.distance = true, .heads = 2, .rows = 1};
  static constexpr auto logit(const auto& p) { return -head<0>(p) * row<0>(p) - head<1>(p) * p.distance; }
};

}  // namespace

TALLY_PAIR(order, WrongOrder);

// A policy whose needs stand in another order than those of PairNeeds: check.py compiles this file as the build does
// and asks the compiler.
#include "autograd/pair.hpp"

namespace {

using tally::head;
using tally::of_key;
using tally::of_query;
using tally::PairNeeds;

struct WrongOrder {
  static constexpr PairNeeds needs{.distance = true, .channels = {.of_query = 1, .of_key = 1}, .heads = 2};
  static constexpr auto term(const auto& p) { return abs(of_query<0>(p) - of_key<0>(p)); }
  static constexpr auto logit(const auto& p) { return -head<0>(p) * p.terms - head<1>(p) * p.distance; }
};

}  // namespace

TALLY_PAIR(order, WrongOrder);

// Score modifications that are wrong in one place each, and the sentence by which each is refused when its file
// compiles: check.py compiles this file and asks the compiler.
#include "autograd/score_mod.hpp"

#include <cmath>

namespace {

using tally::head;
using tally::row;

// REFUSED(stem, "sentence", { the score modification });
#define REFUSED(stem, sentence, ...)  \
  }                                   \
  struct Wrong##stem __VA_ARGS__;     \
  TALLY_SCORE_MOD(stem, Wrong##stem); \
  namespace {                         \
  static_assert(true)

REFUSED(Sum, "p.sum is the sum of gate(p), which the score modification does not have", {
  static constexpr auto logit(const auto& p) { return p.s - p.sum;
}  // namespace
});
REFUSED(SumOfGate, "gates do not read p.sum, which is the sum of gates", {
  static constexpr auto gate(const auto& p) { return p.sum * 2;
}
static constexpr auto logit(const auto& p) { return p.s - p.sum; }
});
REFUSED(Entry, "p.entry is read at position(p), or with gate(p) at p.sum: the score modification has neither", {
  static constexpr auto bias(const auto& p) { return p.entry;
}
});
REFUSED(EntryOfGate, "gates and positions do not read p.entry", {
  static constexpr auto gate(const auto& p) { return p.entry * 2;
}
static constexpr auto bias(const auto& p) { return p.entry; }
});
REFUSED(Position, "position(p) is for p.entry, which the score modification does not read", {
  static constexpr auto position(const auto& p) { return p.distance;
}
static constexpr auto logit(const auto& p) { return p.s * 2; }
});
REFUSED(Row, "the score modification reads row<n>(p), but its `rows` is not above n", {
  static constexpr int rows = 1;
  static constexpr auto logit(const auto& p) { return p.s + row<1>(p); }
});
REFUSED(Head, "the score modification reads head<n>(p), but its `heads` is not above n", {
  static constexpr auto logit(const auto& p) { return p.s * head<0>(p);
}
});
REFUSED(Branch, "a score modification chooses by select(condition, a, b), never by if or ?:", {
  static constexpr auto logit(const auto& p) {
    if (p.s > 0) return p.s;
    return p.s * 2;
}
});
REFUSED(Power, "a score modification has no pow", {
  static constexpr auto logit(const auto& p) { return pow(p.s, 2);
}
});
REFUSED(BiasOfScore, "bias(p) is added to p.s: to read p.s, write logit(p)", {
  static constexpr auto bias(const auto& p) { return p.s * 2;
}
});
REFUSED(GateOfScore, "with bias(p) another product may be part of p.s, which gates and positions must not see", {
  static constexpr auto gate(const auto& p) { return sigmoid(p.s);
}
static constexpr auto bias(const auto& p) { return -p.sum; }
});
REFUSED(BiasedGateLogit, "p.gate_logit has no biases: with logit_after_biases(p) gates read p.s", {
  static constexpr auto logit_after_biases(const auto& p) { return p.s + p.gate_logit;
}
});
REFUSED(Scalars, "a score modification has at most 16 scalars of rows and heads", {
  static constexpr int rows = 9, heads = 8;
  static constexpr auto logit(const auto& p) { return p.s + row<8>(p); }
});
REFUSED(Knots, "knots are of a table: the score modification does not read p.entry", {
  static constexpr bool knots = true;
  static constexpr auto logit(const auto& p) { return p.s * 2; }
});
REFUSED(NoLogit, "a score modification has one of bias(p), logit(p) and logit_after_biases(p)", {
  static constexpr auto gate(const auto& p) { return sigmoid(p.gate_logit);
}
});
REFUSED(TwoLogits, "a score modification has one of bias(p), logit(p) and logit_after_biases(p)", {
  static constexpr auto bias(const auto& p) { return p.distance;
}
static constexpr auto logit(const auto& p) { return p.s * 2; }
});
REFUSED(TwoGates, "a score modification has gate(p) or gate_exclusive(p), not both", {
  static constexpr auto gate(const auto& p) { return sigmoid(p.s);
}
static constexpr auto gate_exclusive(const auto& p) { return sigmoid(p.s); }
static constexpr auto logit(const auto& p) { return p.s - p.sum; }
});

}  // namespace

// Attention in scalar loops of double: the definition that the fused kernels are tested against. Below the two
// kernels: the inputs of the passes in reference.cpp (operands by head, tables, biases and softmax rules).
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "core/attention/problem.hpp"
#include "core/attention/scalar_score_mod.hpp"
#include "core/cpu/attention/score_mod_loops.hpp"

namespace tally::cpu::reference {

// The kernels of these names in core/device/kernels.def, for f64, on one thread and without a workspace. Forward writes
// only the output, since backward computes everything again. They throw Error for dropout and products by distance.
void attention(const AttentionCall& call);
void attention_backward(const AttentionCall& call, const AttentionGradients& gradients);

// One head of an operand or of its gradient: x(i, c) is number c of row i.
struct Operand {
  double* data = nullptr;
  std::int64_t row_step = 0, column_step = 0, width = 0;
  mutable double unwanted = 0;  // receives the gradient of an operand that needs none

  Operand() = default;
  // x has the axes `shape` (core/attention/problem.hpp).
  Operand(const View& x, std::string_view shape, std::int64_t batch, std::int64_t head, std::int64_t key_head)
      : data(x.as<double>()), width(x ? x.shape.back() : 0) {
    int axis = 0;
    for (const char letter : shape) {
      if (letter != 'B' && letter != 'H' && letter != 'G') break;
      data += x.strides[axis++] * (letter == 'B' ? batch : letter == 'H' ? head : key_head);
    }
    row_step = x.strides[axis];
    column_step = x.strides[axis + 1];
  }
  explicit operator bool() const { return data != nullptr; }
  double& operator()(std::int64_t row, std::int64_t column = 0) const {
    return data != nullptr ? data[row * row_step + column * column_step] : unwanted;
  }
};

// x_i . y_j
inline double dot(const Operand& x, std::int64_t i, const Operand& y, std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < x.width; ++c) sum += x(i, c) * y(j, c);
  return sum;
}
// x_i += factor y_j
inline void add(const Operand& x, std::int64_t i, double factor, const Operand& y, std::int64_t j) {
  for (std::int64_t c = 0; c < y.width; ++c) x(i, c) += factor * y(j, c);
}

// The operands of query head h of sequence b, or their gradients. A group of query heads shares one head of keys.
struct Head : AttentionProblem<Operand> {
  Operand output;

  Head(const AttentionCall& call, const AttentionProblem<View>& of, const View& output_of, std::int64_t b,
       std::int64_t h)
      : AttentionProblem<Operand>(
            transformed<Operand>([&](const OperandRule& rule,
                                     const View& x) { return Operand(x, rule.shape, b, h, h / gqa_group_size(call)); },
                                 of)),
        output(output_of, "BHTe", b, h, 0) {}
};

// The token of query t.
inline std::int64_t token_of(const AttentionCall& call, std::int64_t t) { return call.keys() - call.queries() + t; }

// Entry p of a row's table: low_weight z[low] + high_weight z[high], with derivative low_slope z[low] + z[high] by p.
struct Interpolation {
  std::int64_t low, high;
  double low_weight, high_weight, low_slope;
};
inline Interpolation interpolation(const AttentionCall& call, double position) {
  if (const View& knots = call.score_mod.knots) {  // z has a value and a slope for each knot
    const double* const first = knots.as<double>();
    const auto not_before = std::lower_bound(first, first + knots.shape[0], position) - first;
    const std::int64_t n = std::max<std::int64_t>(not_before - 1, 0);
    return {2 * n, 2 * n + 1, 1, position - first[n], 0};
  }
  // Equation 5 with floor(p) + 1 for ceil(p), which has a derivative at whole positions too.
  const std::int64_t last = call.score_mod.table.shape[3] - 1;
  const double p = std::min(position, static_cast<double>(last)), floor = std::max(std::floor(p), 0.0);
  const auto low = static_cast<std::int64_t>(floor);
  return {low, std::min(low + 1, last), 1 - (p - floor), p - floor, -1};
}

// f(element) for every element that the biases of query t and key j are the sum of; `of` has biases or their gradients.
template <class F>
void for_each_bias(const AttentionCall& call, const Head& of, std::int64_t t, std::int64_t j, const F& f) {
  const std::int64_t distance = token_of(call, t) - j;
  for (const auto& [kind, cap, values, column] : of.biases) {
    const std::int64_t last = values.width - 1;
    switch (kind) {
      case BiasOperands<View>::Kind::toeplitz: f(values(distance)); break;
      case BiasOperands<View>::Kind::row_column:
        f(values(t));
        f(column(j));
        break;
      case BiasOperands<View>::Kind::dense: f(values(t, j)); break;
      case BiasOperands<View>::Kind::row_toeplitz:
        if (distance <= last || cap) f(values(t, std::min(distance, last)));
    }
  }
}

// n(l), n'(l), m(l) and m'(l) of a softmax rule, all times e^-shift.
struct RuleAt {
  double n, n_slope, m, m_slope;
};
inline RuleAt rule_at(const SoftmaxRuleOperands<View>& rule, double l, double shift) {
  const double e = std::exp(l - shift), above_one = std::isinf(l) ? 0 : e - std::exp(-shift);
  const double sigmoid = 1 / (1 + std::exp(rule.offset - l));
  switch (rule.kind) {
    case SoftmaxRuleOperands<View>::Kind::softmax: return {e, e, e, e};
    case SoftmaxRuleOperands<View>::Kind::exp: return {e, e, 0, 0};
    case SoftmaxRuleOperands<View>::Kind::sigmoid: return {sigmoid, sigmoid * (1 - sigmoid), 0, 0};
    case SoftmaxRuleOperands<View>::Kind::softpick: break;
  }
  return above_one > 0 ? RuleAt{above_one, e, above_one, e} : RuleAt{0, 0, -above_one, -e};
}

inline const ScalarScoreMod& score_mod_of(const AttentionCall& call) {
  return call.score_mod.mod != nullptr ? *call.score_mod.mod->loops->scalar
                                       : attention::scalar_score_mod<attention::NoScoreMod>;
}

}  // namespace tally::cpu::reference

// A score modification on tensors: the same code with ordinary operations, for reference attention.
#pragma once

#include "autograd/ops.hpp"
#include "core/attention/score_mod.hpp"

namespace tally {

// The inputs of a score modification, for all pairs at once.
struct ScoreModTensors {
  Tensor s;            // [B, H, T, T]
  Tensor gate_logit;   // the same; s if a call has no operands for it
  Tensor sum;          // the same; undefined for the gates
  Tensor entry;        // the same; only for logits
  Tensor distance;     // i - j [T, T], 0 above the diagonal
  Tensor rows, heads;  // [B, H, T, rows], [H, heads]
};

// The functions of ScoreMod::on_tensors. Functions that it does not have give 0 or an undefined tensor.
struct ScoreModOnTensors {
  Tensor (*gate)(const ScoreModTensors& pairs);      // broadcasts to [B, H, T, T]
  Tensor (*position)(const ScoreModTensors& pairs);  // the same
  Tensor (*logit)(const ScoreModTensors& pairs);     // the lowest finite number for minus_infinity
};

namespace attention {

// A tensor, or a plain number that broadcasts to any.
struct TensorNumber {
  Tensor x = {};
  double plain = 0;

  TensorNumber(Tensor tensor) : x(std::move(tensor)) {}
  TensorNumber(double number) : plain(number) {}
  TensorNumber(MinusInfinity);
};
struct TensorTruth {
  Tensor holds;
  Tensor like;  // has the type and device of the compared tensors
};

TensorNumber operator+(const TensorNumber& a, const TensorNumber& b);
TensorNumber operator-(const TensorNumber& a, const TensorNumber& b);
TensorNumber operator*(const TensorNumber& a, const TensorNumber& b);
TensorNumber operator/(const TensorNumber& a, const TensorNumber& b);
TensorNumber operator-(const TensorNumber& x);
TensorTruth operator<(const TensorNumber& a, const TensorNumber& b);
TensorTruth operator<=(const TensorNumber& a, const TensorNumber& b);
inline TensorTruth operator>(const TensorNumber& a, const TensorNumber& b) { return b < a; }
inline TensorTruth operator>=(const TensorNumber& a, const TensorNumber& b) { return b <= a; }
TensorTruth operator&&(const TensorTruth& a, const TensorTruth& b);
TensorTruth operator||(const TensorTruth& a, const TensorTruth& b);
TensorTruth operator!(const TensorTruth& a);
TensorNumber select(const TensorTruth& truth, const TensorNumber& a, const TensorNumber& b);
TensorNumber min(const TensorNumber& a, const TensorNumber& b);
TensorNumber max(const TensorNumber& a, const TensorNumber& b);
TensorNumber relu(const TensorNumber& x);
TensorNumber abs(const TensorNumber& x);
TensorNumber exp(const TensorNumber& x);
TensorNumber log(const TensorNumber& x);
TensorNumber sqrt(const TensorNumber& x);
TensorNumber sin(const TensorNumber& x);
TensorNumber cos(const TensorNumber& x);
TensorNumber sigmoid(const TensorNumber& x);
TensorNumber softplus(const TensorNumber& x);
TensorNumber tanh(const TensorNumber& x);

// The inputs of a score modification for all pairs: PairInputs with tensors.
template <class ScoreMod>
struct TensorInputs {
  using Mod = ScoreMod;
  TensorNumber s, distance, gate_logit, sum, entry;
  const ScoreModTensors& given;

  explicit TensorInputs(const ScoreModTensors& pairs)
      : s(pairs.s),
        distance(pairs.distance),
        gate_logit(pairs.gate_logit),
        sum(pairs.sum),
        entry(pairs.entry),
        given(pairs) {}
  template <int n>
  TensorNumber scalar() const {
    if constexpr (n < rows_of<Mod>) {
      return slice(given.rows, 3, n, n + 1);  // [B, H, T, 1]
    } else {
      return unsqueeze(unsqueeze(tally::select(given.heads, 1, n - rows_of<Mod>), 1), 2);  // [H, 1, 1]
    }
  }
  static TensorNumber result(const TensorNumber& x) { return x; }
};

// As a tensor, even for a plain number.
Tensor as_tensor(const TensorNumber& x, const Tensor& like);

}  // namespace attention

template <class Mod>
inline constexpr ScoreModOnTensors score_mod_on_tensors{
    [](const ScoreModTensors& pairs) {
      return attention::as_tensor(attention::gate_of<Mod>(attention::TensorInputs<Mod>(pairs)), pairs.s);
    },
    [](const ScoreModTensors& pairs) {
      return attention::as_tensor(attention::position_of<Mod>(attention::TensorInputs<Mod>(pairs)), pairs.s);
    },
    [](const ScoreModTensors& pairs) {
      return attention::as_tensor(attention::logit_of<Mod>(attention::TensorInputs<Mod>(pairs)), pairs.s);
    }};

}  // namespace tally

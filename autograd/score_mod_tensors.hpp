// A score modification on tensors: the same code with ordinary operations, for reference attention.
#pragma once

#include <limits>
#include <utility>

#include "autograd/ops.hpp"
#include "core/attention/score_mod.hpp"
#include "core/error.hpp"

namespace tally {

namespace attention {

// A tensor, or a plain number that broadcasts to any.
struct TensorNumber {
  Tensor x = {};
  double plain = 0;

  TensorNumber() = default;
  TensorNumber(Tensor tensor) : x(std::move(tensor)) {}
  TensorNumber(double number) : plain(number) {}
  // Not infinite, because the search for the first non-finite number would report it as a mistake.
  TensorNumber(MinusInfinity) : plain(std::numeric_limits<float>::lowest()) {}
};
struct TensorTruth {
  Tensor holds;
  Tensor like;  // has the type and device of the compared tensors
};

// As a tensor, even for a plain number.
inline Tensor as_tensor(const TensorNumber& x, const Tensor& like) {
  return x.x.defined() ? x.x : Tensor::full({1}, x.plain, like.dtype(), like.device());
}
// f of two numbers that are not both plain.
template <class F>
auto on_tensors(const TensorNumber& a, const TensorNumber& b, const F& f) {
  check(a.x.defined() || b.x.defined(), "score modification", "it computes with plain numbers only: write the result");
  return f(as_tensor(a, b.x), as_tensor(b, a.x));
}

inline TensorNumber operator+(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return add(x, y); });
}
inline TensorNumber operator-(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return subtract(x, y); });
}
inline TensorNumber operator*(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return multiply(x, y); });
}
inline TensorNumber operator/(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return divide(x, y); });
}
inline TensorNumber operator-(const TensorNumber& x) { return 0.0 - x; }
inline TensorTruth operator<(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return TensorTruth{less(x, y), x}; });
}
inline TensorTruth operator<=(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return TensorTruth{less_equal(x, y), x}; });
}
inline TensorTruth operator>(const TensorNumber& a, const TensorNumber& b) { return b < a; }
inline TensorTruth operator>=(const TensorNumber& a, const TensorNumber& b) { return b <= a; }
inline TensorNumber select(const TensorTruth& truth, const TensorNumber& a, const TensorNumber& b) {
  return where(truth.holds, as_tensor(a, truth.like), as_tensor(b, truth.like));
}
inline TensorTruth operator!(const TensorTruth& a) { return 0.0 < select(a, 0.0, 1.0); }
inline TensorTruth operator&&(const TensorTruth& a, const TensorTruth& b) {
  return 0.0 < select(a, select(b, 1.0, 0.0), 0.0);
}
inline TensorTruth operator||(const TensorTruth& a, const TensorTruth& b) { return !(!a && !b); }
inline TensorNumber min(const TensorNumber& a, const TensorNumber& b) { return select(a <= b, a, b); }
inline TensorNumber max(const TensorNumber& a, const TensorNumber& b) { return select(a >= b, a, b); }
inline TensorNumber relu(const TensorNumber& x) { return tally::relu(x.x); }
inline TensorNumber abs(const TensorNumber& x) { return tally::abs(x.x); }
inline TensorNumber exp(const TensorNumber& x) { return tally::exp(x.x); }
inline TensorNumber log(const TensorNumber& x) { return tally::log(x.x); }
inline TensorNumber sqrt(const TensorNumber& x) { return tally::sqrt(x.x); }
inline TensorNumber sin(const TensorNumber& x) { return tally::sin(x.x); }
inline TensorNumber cos(const TensorNumber& x) { return tally::cos(x.x); }
inline TensorNumber sigmoid(const TensorNumber& x) { return tally::sigmoid(x.x); }
inline TensorNumber softplus(const TensorNumber& x) { return tally::softplus(x.x); }
inline TensorNumber tanh(const TensorNumber& x) { return tally::tanh(x.x); }

}  // namespace attention

// The inputs of a score modification, for all pairs at once.
struct ScoreModTensors {
  attention::TensorNumber s;           // [B, H, T, T]
  attention::TensorNumber gate_logit;  // the same; s if a call has no operands for it
  attention::TensorNumber sum;         // the same; undefined for the gates
  attention::TensorNumber entry;       // the same; only for logits
  attention::TensorNumber distance;    // i - j [T, T], 0 above the diagonal
  Tensor rows, heads;                  // [B, H, T, rows], [H, heads]
};

// The functions of ScoreMod::on_tensors. Functions that it does not have give 0 or an undefined tensor.
struct ScoreModOnTensors {
  Tensor (*gate)(const ScoreModTensors& pairs);      // broadcasts to [B, H, T, T]
  Tensor (*position)(const ScoreModTensors& pairs);  // the same
  Tensor (*logit)(const ScoreModTensors& pairs);     // the lowest finite number for minus_infinity
};

namespace attention {

// PairInputs with tensors.
template <class ScoreMod>
struct TensorInputs : ScoreModTensors {
  using Mod = ScoreMod;

  template <int n>
  TensorNumber scalar() const {
    if constexpr (n < rows_of<Mod>) {
      return slice(rows, 3, n, n + 1);  // [B, H, T, 1]
    } else {
      return unsqueeze(unsqueeze(tally::select(heads, 1, n - rows_of<Mod>), 1), 2);  // [H, 1, 1]
    }
  }
  static TensorNumber result(const TensorNumber& x) { return x; }
};

}  // namespace attention

template <class Mod>
inline constexpr ScoreModOnTensors score_mod_on_tensors{
    [](const ScoreModTensors& pairs) {
      return attention::as_tensor(attention::gate_of<Mod>(attention::TensorInputs<Mod>{pairs}), pairs.s.x);
    },
    [](const ScoreModTensors& pairs) {
      return attention::as_tensor(attention::position_of<Mod>(attention::TensorInputs<Mod>{pairs}), pairs.s.x);
    },
    [](const ScoreModTensors& pairs) {
      return attention::as_tensor(attention::logit_of<Mod>(attention::TensorInputs<Mod>{pairs}), pairs.s.x);
    }};

}  // namespace tally

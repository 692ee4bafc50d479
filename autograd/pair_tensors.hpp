// A pair policy on tensors: the same code with ordinary operations, for reference attention.
#pragma once

#include "autograd/ops.hpp"
#include "core/attention/pair.hpp"

namespace tally {

// The inputs of a policy, for all pairs at once.
struct PairTensors {
  Tensor s;            // [B, H, T, T]
  Tensor other;        // the same; s if a call has no operands for it
  Tensor sum;          // the same; undefined for the gates
  Tensor entry;        // the same; only for logits
  Tensor distance;     // i - j [T, T], 0 above the diagonal
  Tensor rows, heads;  // [B, H, T, rows], [H, heads]
};

// The functions of PairPolicy::on_tensors.
struct PairOnTensors {
  Tensor (*gate)(const PairTensors& pairs);   // broadcasts to [B, H, T, T]; undefined without a scan
  Tensor (*place)(const PairTensors& pairs);  // the same; undefined without a table
  Tensor (*logit)(const PairTensors& pairs);  // the lowest finite number for minus_infinity
};

namespace attention {

// A tensor, or a plain number that broadcasts to any.
struct TensorNumber {
  Tensor x = {};
  double plain = 0;

  TensorNumber(Tensor tensor) : x(std::move(tensor)) {}
  TensorNumber(double number) : plain(number) {}
  TensorNumber(MinusInfinity);
  using OfAPolicy = void;
};
struct TensorTruth {
  Tensor holds;
  Tensor like;  // has the type and device of the compared tensors

  TALLY_NO_BRANCH
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

// A policy's input for all pairs: PairIn with tensors.
template <class Policy>
struct PairInTensors {
  static constexpr PairNeeds needs = Policy::needs;
  TensorNumber s, distance, other, sum, entry, of_distance = 0.0;
  const PairTensors& given;

  explicit PairInTensors(const PairTensors& pairs)
      : s(pairs.s), distance(pairs.distance), other(pairs.other), sum(pairs.sum), entry(pairs.entry), given(pairs) {
    if constexpr (requires { Policy::of_distance(*this); }) of_distance = Policy::of_distance(*this);
  }
  template <int n>
  TensorNumber number() const {
    if constexpr (n < needs.rows) {
      return slice(given.rows, 3, n, n + 1);  // [B, H, T, 1]
    } else {
      return unsqueeze(unsqueeze(tally::select(given.heads, 1, n - needs.rows), 1), 2);  // [H, 1, 1]
    }
  }
};

// As a tensor, even if a policy returns a plain number.
Tensor as_tensor(const TensorNumber& x, const Tensor& like);

}  // namespace attention

template <class Policy>
inline constexpr PairOnTensors pair_on_tensors{
    [](const PairTensors& pairs) -> Tensor {
      if constexpr (Policy::needs.scan) {
        return attention::as_tensor(Policy::gate(attention::PairInTensors<Policy>(pairs)), pairs.s);
      } else {
        return {};
      }
    },
    [](const PairTensors& pairs) -> Tensor {
      if constexpr (!Policy::needs.table) {
        return {};
      } else if constexpr (requires(const attention::PairInTensors<Policy>& p) { Policy::place(p); }) {
        return attention::as_tensor(Policy::place(attention::PairInTensors<Policy>(pairs)), pairs.s);
      } else {
        return pairs.sum;
      }
    },
    [](const PairTensors& pairs) -> Tensor {
      return attention::as_tensor(Policy::logit(attention::PairInTensors<Policy>(pairs)), pairs.s);
    }};

}  // namespace tally

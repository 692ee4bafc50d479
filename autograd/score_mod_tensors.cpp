#include "autograd/score_mod_tensors.hpp"

#include <limits>

#include "core/error.hpp"

namespace tally::attention {

namespace {

Tensor constant(double x, const Tensor& like) { return Tensor::full({1}, x, like.dtype(), like.device()); }

// f of two numbers that are not both plain.
template <class F>
auto on_tensors(const TensorNumber& a, const TensorNumber& b, const F& f) {
  check(a.x.defined() || b.x.defined(), "score modification", "it computes with plain numbers only: write the result");
  return f(as_tensor(a, b.x), as_tensor(b, a.x));
}

}  // namespace

// Not infinite, because the search for the first non-finite number would report it as a mistake.
TensorNumber::TensorNumber(MinusInfinity) : plain(std::numeric_limits<float>::lowest()) {}

Tensor as_tensor(const TensorNumber& x, const Tensor& like) { return x.x.defined() ? x.x : constant(x.plain, like); }

TensorNumber operator+(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return add(x, y); });
}
TensorNumber operator-(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return subtract(x, y); });
}
TensorNumber operator*(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return multiply(x, y); });
}
TensorNumber operator/(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return divide(x, y); });
}
TensorNumber operator-(const TensorNumber& x) { return 0.0 - x; }
TensorTruth operator<(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return TensorTruth{less(x, y), x}; });
}
TensorTruth operator<=(const TensorNumber& a, const TensorNumber& b) {
  return on_tensors(a, b, [](const Tensor& x, const Tensor& y) { return TensorTruth{less_equal(x, y), x}; });
}
TensorTruth operator&&(const TensorTruth& a, const TensorTruth& b) {
  const TensorNumber both = select(a, select(b, 1.0, 0.0), 0.0);
  return 0.0 < both;
}
TensorTruth operator||(const TensorTruth& a, const TensorTruth& b) { return !(!a && !b); }
TensorTruth operator!(const TensorTruth& a) { return 0.0 < select(a, 0.0, 1.0); }
TensorNumber select(const TensorTruth& truth, const TensorNumber& a, const TensorNumber& b) {
  return where(truth.holds, as_tensor(a, truth.like), as_tensor(b, truth.like));
}
TensorNumber min(const TensorNumber& a, const TensorNumber& b) { return select(a <= b, a, b); }
TensorNumber max(const TensorNumber& a, const TensorNumber& b) { return select(a >= b, a, b); }
TensorNumber relu(const TensorNumber& x) { return tally::relu(x.x); }
TensorNumber abs(const TensorNumber& x) { return tally::abs(x.x); }
TensorNumber log(const TensorNumber& x) { return tally::log(x.x); }
TensorNumber sqrt(const TensorNumber& x) { return tally::sqrt(x.x); }
TensorNumber sin(const TensorNumber& x) { return tally::sin(x.x); }
TensorNumber cos(const TensorNumber& x) { return tally::cos(x.x); }
TensorNumber exp(const TensorNumber& x) { return tally::exp(x.x); }
TensorNumber sigmoid(const TensorNumber& x) { return tally::sigmoid(x.x); }
TensorNumber softplus(const TensorNumber& x) { return tally::softplus(x.x); }
TensorNumber tanh(const TensorNumber& x) { return tally::tanh(x.x); }

}  // namespace tally::attention

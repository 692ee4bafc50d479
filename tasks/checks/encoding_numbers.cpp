#include "tasks/checks/encoding_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {

Numbers numbers_of(const Tensor& x) { return x.to(Device{}).to(DType::f64).to_vector<double>(); }

double largest(const Numbers& x) {
  double most = 0;
  for (const double v : x) most = std::isnan(v) ? std::numeric_limits<double>::infinity() : std::max(most, std::abs(v));
  return most;
}

double largest_difference(const Numbers& x, const Numbers& y) {
  if (x.size() != y.size()) return std::numeric_limits<double>::infinity();
  Numbers differences;
  for (std::size_t n = 0; n < x.size(); ++n) differences.push_back(x[n] - y[n]);
  return largest(differences);
}

std::string short_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", x);
  return text;
}

bool takes(const Transformer& model, std::int64_t length) {
  try {
    model.check_length(length);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::int64_t length_for(const EncodingChoice& choice, std::int64_t wanted) {
  const auto model = encoding_model(choice, {.length = wanted});
  std::int64_t length = wanted;
  while (length > 2 && !takes(*model, length)) --length;
  return length;
}

Computed computed(Transformer& model, std::int64_t length, Device device, std::int64_t batch) {
  const Tensor tokens = encoding_tokens(length, device, batch);
  const Tensor logits = model.forward(tokens);
  backward(cross_entropy(logits, tokens, Tensor::full(tokens.shape(), 1, DType::boolean, device)));
  Computed result{numbers_of(logits), {}};
  for (const auto& [path, parameter] : model.parameters()) {
    const Tensor slope = gradient(parameter);
    result.gradients.emplace_back(path, slope.defined() ? numbers_of(slope) : Numbers());
  }
  return result;
}

}  // namespace tally

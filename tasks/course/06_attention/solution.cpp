// The triangle becomes a band along the diagonal. A layer carries information 7 places further, three layers 21.
#include <tally/tally.hpp>

using tally::Tensor;

Tensor window_weights(const Tensor& scores, std::int64_t width) {
  const Tensor places = Tensor::arange(scores.size(-1), scores.dtype());
  const Tensor query = unsqueeze(places, 1), key = unsqueeze(places, 0);
  const Tensor masked = Tensor::full({1}, -1e30, scores.dtype());
  const Tensor past = where(less_equal(key, query), scores, masked);
  return softmax(where(less(add(query, -static_cast<double>(width)), key), past, masked));
}

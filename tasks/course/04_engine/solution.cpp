#include <tally/tally.hpp>

using tally::Tensor;

Tensor swish(const Tensor& x) {
  Tensor y;
  {
    const tally::NoGrad values_only;
    y = x * sigmoid(x);
  }
  record("swish", y, {x}, [saved = tally::Saved("swish", x)](const Tensor& d_y, tally::Gradients& d) {
    const Tensor s = sigmoid(saved.get());
    d.set(0, d_y * (s + saved.get() * s * (1 - s)));
  });
  return y;
}

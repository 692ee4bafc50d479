// Sinusoidal positions (arXiv 1706.03762, section 3.5), for any length:
//   x_t[2i] += sin(t / 10000^(2i/D)),  x_t[2i+1] += cos(t / 10000^(2i/D))
#include <cmath>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/encoding.hpp"

namespace tally {
namespace {

// Of the places first .. first + length - 1: [T, D]
Tensor sinusoids(std::int64_t first, std::int64_t length, std::int64_t width, DType dtype, Device device) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(length * width));
  for (std::int64_t t = first; t < first + length; ++t) {
    for (std::int64_t n = 0; n < width; ++n) {
      const std::int64_t even = n - n % 2;
      const double angle =
          static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(even) / static_cast<double>(width));
      values.push_back(n == even ? std::sin(angle) : std::cos(angle));
    }
  }
  return Tensor::from(values, {length, width}, device).to(dtype);
}

class Sinusoidal final : public Encoding {
 public:
  Sinusoidal(const EncodingSetup&, const NoOptions&) {}
  Tensor embed(const Tensor& x, std::int64_t first) const override {
    return x + sinusoids(first, x.size(1), x.size(2), x.dtype(), x.device());
  }
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(sinusoidal, NoOptions, Sinusoidal, "sines and cosines of the place, added to the token embedding",
               "x_t[2i] += sin(t / 10000^(2i/D));  x_t[2i+1] += cos(t / 10000^(2i/D))",
               "Vaswani et al. 2017, arXiv 1706.03762");

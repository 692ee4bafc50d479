// Sinusoidal positions (arXiv 1706.03762, section 3.5), for any length:
//   x_t[2i] += sin(t / 10000^(2i/D)),  x_t[2i+1] += cos(t / 10000^(2i/D))
#include <cmath>
#include <numbers>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

double frequency(std::int64_t column, std::int64_t width) {
  return std::pow(10000.0, -static_cast<double>(column - column % 2) / static_cast<double>(width));
}

double sinusoid(std::int64_t t, std::int64_t column, std::int64_t width) {
  const double angle = static_cast<double>(t) * frequency(column, width);
  return column % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

// Two rows: the frequency, and the phase that makes a cosine of a sine.
double wave(std::int64_t row, std::int64_t column, std::int64_t width) {
  return row == 0 ? frequency(column, width) : static_cast<double>(column % 2) * std::numbers::pi / 2;
}

class Sinusoidal final : public Encoding {
 public:
  Tensor embed(const Tensor& x, const TokenPositions& at) const override {
    if (at.drawn.defined()) {
      const Tensor rows = constants->of(wave, 0, 2, x.size(2), DType::f64, x.device());
      const Tensor angles = unsqueeze(at.drawn, 1) * slice(rows, 0, 0, 1) + slice(rows, 0, 1, 2);
      return x + cast(sin(angles), x.dtype());
    }
    if (!at.each.defined()) return x + waves(at.first, at.first + x.size(1), x);
    return x + embedding(waves(0, at.end, x), at.each);
  }

 private:
  Tensor waves(std::int64_t first, std::int64_t end, const Tensor& x) const {
    return constants->of(sinusoid, first, end, x.size(2), x.dtype(), x.device());
  }
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(sinusoidal, NoOptions, Sinusoidal, "sines and cosines of the position, added to the token embedding",
               "x_t[2i] += sin(t / 10000^(2i/D));  x_t[2i+1] += cos(t / 10000^(2i/D))",
               "Vaswani et al. 2017, arXiv 1706.03762", .reads_heads = false);

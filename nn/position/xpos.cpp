// Rotary positions whose far products decay (xPos, arXiv 2212.10554): RoPE with base 10000, then in plane i at position
// t, from 0,
//   q *= ζ_i^(t/512),  k *= ζ_i^(-t/512),  ζ_i = (2i + 0.4 d) / (1.4 d).
// So plane i of the product is multiplied by ζ_i^((i-j)/512). Layouts: nn/encoding/rotary.hpp.
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/rotary.hpp"

namespace tally {
namespace {

constexpr double scale_base = 512;

struct XposOptions final : OptionsOf<XposOptions> {
  std::string layout = "half";

  void visit(OptionVisitor& visitor) override {
    visitor.choice("layout", layout, {"half", "interleaved"}, "dimensions of a plane: i and i + d/2, or 2i and 2i+1");
  }
};

// ln(ζ_i) / 512, negative: q shrinks and k grows with the position.
double growth(std::int64_t plane, std::int64_t dims) {
  const double d = static_cast<double>(dims);
  return std::log((2 * static_cast<double>(plane) + 0.4 * d) / (1.4 * d)) / scale_base;
}

// sign: 1 for q, -1 for k
Rotary make_rotary(const EncodingSetup& setup, const XposOptions& options, double sign) {
  const std::int64_t dims = setup.head_width;
  std::vector<RotaryPlane> planes = rotary_planes("xpos", dims, 10000);
  for (std::int64_t i = 0; i < dims / 2; ++i) planes[static_cast<std::size_t>(i)].growth = sign * growth(i, dims);
  return {std::move(planes), 1, options.layout == "interleaved", setup.max_length, setup.dtype, setup.device};
}

class Xpos final : public Encoding {
 public:
  Xpos(const EncodingSetup& setup, const XposOptions& options)
      : query_(make_rotary(setup, options, 1)), key_(make_rotary(setup, options, -1)) {
    // For longer texts, the product of a tiny q and a huge k would lose its precision.
    const double largest = setup.dtype == DType::f64 ? std::numeric_limits<double>::max()
                                                     : static_cast<double>(std::numeric_limits<float>::max());
    limit_ = static_cast<std::int64_t>(0.75 * std::log(largest) / -growth(0, setup.head_width));
  }

  void check_length(std::int64_t length) const override {
    check(length <= limit_, "xpos",
          "scales of positions above {} leave the range of the numbers, the sequence has {} tokens", limit_, length);
  }
  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput& in) const override {
    q = query_.rotate(q, in);
    k = key_.rotate(k, in);
  }

 private:
  Rotary query_, key_;
  std::int64_t limit_ = 0;  // longest sequence
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(xpos, XposOptions, Xpos, "rotary, and products decay with the distance, faster in fast planes",
               "RoPE, then q *= ζ_i^(t/512), k *= ζ_i^(-t/512);  ζ_i = (2i + 0.4 d) / (1.4 d)",
               "xPos: Sun et al. 2022, arXiv 2212.10554", .reads_heads = false);

// Rotary positions (RoPE, arXiv 2104.09864, equations 15 and 34): q and k at place t, from 0, are turned in each of r/2
// planes by t θ_i, so that their product depends on the distance alone:
//   (a, b) -> (a cos(t θ_i) - b sin(t θ_i), a sin(t θ_i) + b cos(t θ_i)),  θ_i = base^(-2i/r),  i = 0 .. r/2-1
// Planes are the dims (i, i + r/2) in layout half and (2i, 2i+1) in layout interleaved; dims from r on are left alone.
#include <cmath>
#include <vector>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/encoding.hpp"

namespace tally {
namespace {

struct RopeOptions final : OptionsOf<RopeOptions> {
  std::string layout = "half";
  double base = 10000;
  std::int64_t rotary_dims = 0;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("layout", layout, {"half", "interleaved"},
                   "which dims form a plane: i with i + r/2, or 2i with 2i+1");
    visitor.real("base", base, "of the geometric sequence of angles", 1);
    visitor.integer("rotary-dims", rotary_dims, "dims r that are rotated, even; 0 for the whole head", 0, 1 << 16);
  }
};

class Rope final : public Encoding {
 public:
  Rope(const EncodingSetup& setup, const RopeOptions& options)
      : interleaved_(options.layout == "interleaved"),
        base_(options.base),
        dims_(options.rotary_dims > 0 ? options.rotary_dims : setup.head_width) {
    check(dims_ % 2 == 0, "rope", "planes need an even number of dims, but ", dims_, " are to be rotated");
    check(dims_ <= setup.head_width, "rope", "rotary-dims ", dims_, " is more than the head width ", setup.head_width);
    angles_ = make_angles(setup.max_length, setup.dtype, setup.device);
  }

  void rotate(Tensor& q, Tensor& k, Tensor&, const AttentionInput& in) const override {
    const std::int64_t end = in.keys();
    // Longer than announced: the table is made for this call.
    const Angles angles = end <= angles_.cosine.size(0) ? angles_ : make_angles(end, q.dtype(), q.device());
    const Tensor cosine = angles.cosine.slice_view(0, in.first, end);
    const Tensor sine = angles.sine.slice_view(0, in.first, end);
    q = rotate_pairs(q, cosine, sine, interleaved_);
    k = rotate_pairs(k, cosine, sine, interleaved_);
  }

 private:
  struct Angles {
    Tensor cosine, sine;  // [T, r/2]
  };

  Angles make_angles(std::int64_t length, DType dtype, Device device) const {
    std::vector<double> cosine, sine;
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t i = 0; i < dims_ / 2; ++i) {
        const double theta = std::pow(base_, -2.0 * static_cast<double>(i) / static_cast<double>(dims_));
        cosine.push_back(std::cos(static_cast<double>(t) * theta));
        sine.push_back(std::sin(static_cast<double>(t) * theta));
      }
    }
    const Shape shape{length, dims_ / 2};
    return {Tensor::from(cosine, shape, device).to(dtype), Tensor::from(sine, shape, device).to(dtype)};
  }

  bool interleaved_;
  double base_;
  std::int64_t dims_;  // r
  Angles angles_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(rope, RopeOptions, Rope, "rotary: q and k turned by angles that grow with the place",
               "(a, b) -> (a cos(t θ_i) - b sin(t θ_i), a sin(t θ_i) + b cos(t θ_i));  θ_i = base^(-2i/d), i from 0",
               "RoPE: Su et al. 2021, arXiv 2104.09864");

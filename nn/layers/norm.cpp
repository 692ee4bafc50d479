#include "nn/layers/norm.hpp"

#include "core/error.hpp"

namespace tally {

LayerNorm::LayerNorm(const Initializer& start, std::int64_t width, double eps)
    : weight_(add_parameter("weight", start.make("weight", {width}, Fill::constant(1)))),
      bias_(add_parameter("bias", start.make("bias", {width}, Fill::constant(0)))),
      eps_(eps) {}

Tensor LayerNorm::forward(const Tensor& x, OutputPrecision precision) const {
  return layer_norm(x, weight_, bias_, eps_, precision);
}

RmsNorm::RmsNorm(const Initializer& start, std::int64_t width, double eps)
    : weight_(add_parameter("weight", start.make("weight", {width}, Fill::constant(1)))), eps_(eps) {}

Tensor RmsNorm::forward(const Tensor& x, OutputPrecision precision) const {
  return rms_norm(x, weight_, eps_, precision);
}

std::unique_ptr<Norm> Norm::make(std::string_view kind, const Initializer& start, std::int64_t width, double eps) {
  if (kind == "layer") return std::make_unique<LayerNorm>(start, width, eps > 0 ? eps : 1e-5);
  if (kind == "rms") return std::make_unique<RmsNorm>(start, width, eps > 0 ? eps : 1e-6);
  fail("norm", "there are layer and rms, not '{}'", kind);
}

}  // namespace tally

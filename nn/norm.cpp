#include "nn/norm.hpp"

#include "autograd/ops.hpp"
#include "core/error.hpp"

namespace tally {

LayerNorm::LayerNorm(const Initializer& start, std::int64_t width)
    : weight_(add_parameter("weight", start.make("weight", {width}, Fill::constant(1)))),
      bias_(add_parameter("bias", start.make("bias", {width}, Fill::constant(0)))) {}

Tensor LayerNorm::forward(const Tensor& x) const { return layer_norm(x, weight_, bias_); }

RmsNorm::RmsNorm(const Initializer& start, std::int64_t width)
    : weight_(add_parameter("weight", start.make("weight", {width}, Fill::constant(1)))) {}

Tensor RmsNorm::forward(const Tensor& x) const { return rms_norm(x, weight_); }

std::unique_ptr<Norm> Norm::make(std::string_view kind, const Initializer& start, std::int64_t width) {
  if (kind == "layer") return std::make_unique<LayerNorm>(start, width);
  if (kind == "rms") return std::make_unique<RmsNorm>(start, width);
  fail("norm", "there are layer and rms, not '", kind, "'");
}

}  // namespace tally

#include "nn/layers/norm.hpp"

#include "core/error.hpp"

namespace tally {

Norm::Norm(const Initializer& start, std::string_view kind, std::int64_t width, double eps)
    : weight_(add_parameter("weight", start.make("weight", {width}, Fill::constant(1)))), eps_(eps) {
  check(kind == "layer" || kind == "rms", "norm", "kind must be layer or rms, got '{}'", kind);
  if (kind == "layer") bias_ = add_parameter("bias", start.make("bias", {width}, Fill::constant(0)));
  if (eps == 0) eps_ = kind == "layer" ? 1e-5 : 1e-6;
}

Tensor Norm::forward(const Tensor& x, OutputPrecision precision) const {
  return bias_.defined() ? layer_norm(x, weight_, bias_, eps_, precision) : rms_norm(x, weight_, eps_, precision);
}

}  // namespace tally

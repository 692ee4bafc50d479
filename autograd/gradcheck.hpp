// Checks derivatives against central differences in f64:
//   d y[o] / d x[e]  ~  (y(x + eps e)[o] - y(x - eps e)[o]) / (2 eps)
// Small functions: every entry of the Jacobian, one backward pass an output element. Larger ones: for each input a few
// random directions v and one random weight w of the outputs, (L(x + eps v) - L(x - eps v)) / (2 eps) with L = sum w y.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

struct GradcheckOptions {
  double eps = 1e-6;
  double atol = 1e-5;  // passes where |analytic - numeric| <= atol + rtol |numeric|
  double rtol = 1e-3;
  std::int64_t full_limit = 1000;  // the full Jacobian up to so many elements of inputs and output together
  int directions = 3;              // per input, beyond that
  std::uint64_t seed = 0;          // of directions and weights
};

struct GradcheckResult {
  bool ok = true;
  bool full = true;           // whether the full Jacobian was compared
  std::int64_t compared = 0;  // numbers compared
  double worst = 0;           // largest |analytic - numeric| / (atol + rtol |numeric|)
  std::string text;           // where that was, both numbers, and the tolerances
};

// f of the inputs against its derivatives by all floating inputs. f must give the same result for the same inputs. A
// wrong derivative is told by the result, not thrown; throws Error when a floating input or f's result is not f64, and
// whatever f throws.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace tally

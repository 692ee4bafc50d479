// Checks derivatives against central differences in f64:
//   d y[o] / d x[e]  ~  (y(x + eps e)[o] - y(x - eps e)[o]) / (2 eps).
// For small functions every entry of the Jacobian is compared, with one backward pass per output element. For larger
// ones: a few random directions v for each input, and one random weight w of the outputs. Compared is (L(x + eps v) -
// L(x - eps v)) / (2 eps) with L = sum w y.
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
  std::int64_t full_limit = 1000;  // the full Jacobian up to this number of elements of inputs and output together
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

// Compares f's derivatives by all floating-point inputs with differences of f. f must give the same result for the same
// inputs. A wrong derivative is reported in the result, not thrown. Throws Error if a floating-point input or f's
// result is not f64, and rethrows the errors of f.
GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace tally

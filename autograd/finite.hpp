// Finds the operation that produced the first non-finite number. While it is on, every recorded operation checks its
// result, and backward checks the gradients of each operation.
#pragma once

#include <string_view>

#include "core/error.hpp"
#include "core/tensor.hpp"

namespace tally {

// "[softmax] the result, [16, 4, 8, 8], is not finite".
class NotFinite : public Error {
 public:
  using Error::Error;
};

// For all threads of the program. Off by default: each check reads a whole tensor.
void set_finite_checks(bool on);
bool finite_checks();

// Whether all elements are finite (for f64 also below about 1e150, because they are squared). True for types without
// infinity.
bool all_finite(const Tensor& x);
// Throws NotFinite("[operation] what, [shape], is not finite").
void check_finite(std::string_view operation, std::string_view what, const Tensor& x);

}  // namespace tally

// The search for the operation that made the first number that is not finite: while it is on, every recorded operation
// checks its result, and backward the gradients that each operation gives.
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

// For all threads of the program. Off at first: each check reads a whole tensor.
void set_finite_checks(bool on);
bool finite_checks();

// Whether all elements are finite (of f64: and below 1e150 or so, as they are squared). True for types without
// infinity.
bool all_finite(const Tensor& x);
// Throws NotFinite("[operation] what, [shape], is not finite").
void check_finite(std::string_view operation, std::string_view what, const Tensor& x);

}  // namespace tally

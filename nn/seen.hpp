// Which pairs of a query and a key count, where attention is written out.
#pragma once

#include <cstdint>

#include "core/attention/visible.hpp"
#include "core/tensor.hpp"

namespace tally {

// Whether query i, of those from `first` on, sees key j, bool [1, length - first, length]; strictly: no token sees
// itself. In numbers of this type, on this device.
Tensor seen_pairs(const Visible& visible, std::int64_t length, DType dtype, Device device, std::int64_t first = 0,
                  bool strictly = false);

// x [.., T, T] with 0 for every pair that is not seen.
Tensor masked(const Tensor& x, const Tensor& seen);
// With the lowest of all numbers, whose exponential is 0; not infinite, which the search for the first number that is
// not finite would take for a mistake.
Tensor lowered(const Tensor& x, const Tensor& seen);

}  // namespace tally

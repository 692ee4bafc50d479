// The attention mask of the reference form, as a tensor.
#pragma once

#include <cstdint>

#include "core/attention/mask.hpp"
#include "core/tensor.hpp"

namespace tally {

// Whether key j is unmasked for query i, for the queries from `first` on: bool [1, length - first, length]; strictly: a
// token is masked from itself. Computed in numbers of this type, on this device.
Tensor mask_tensor(const AttentionMask& mask, std::int64_t length, DType dtype, Device device, std::int64_t first = 0,
                   bool strictly = false);

// x [.., T, T] with 0 for every masked pair.
Tensor masked_fill_zero(const Tensor& x, const Tensor& seen);
// With the lowest finite number, whose exponential is 0, for masked pairs. Not infinite: the search for the first
// non-finite number would report it.
Tensor masked_fill_min(const Tensor& x, const Tensor& seen);

}  // namespace tally

// Sums of tensors over the ranks that train a run together.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ranks.hpp"
#include "core/tensor.hpp"

namespace tally {

// Replaces the tensors of every rank by their sums over the first `terms` ranks, in the tree of tree_share(); those of
// the others are overwritten. The same shapes and the same type, f32 or f64, on all ranks; undefined ones stand for
// zeros. Sent in buckets, whose order is that of the tensors.
void add_over_ranks(const Ranks& ranks, std::vector<Tensor>& tensors, const std::vector<Shape>& shapes, DType dtype,
                    Device device, std::int64_t terms);

}  // namespace tally

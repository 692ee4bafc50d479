// Sums over ranks of what lies on their devices, bucket by bucket, while other work goes on.
//
// Of a bucket each rank adds up a part: it gets that part of all others, adds them in a fixed tree, and sends the sum
// to all. So a rank sends and receives less than twice the bytes of a bucket, whatever the number of ranks
// (reduce-scatter and all-gather, Patarasuk & Yuan 2009, with messages to all others at once instead of a ring: in a
// ring the order of the additions would follow from who stands where).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device.hpp"
#include "core/ranks.hpp"
#include "core/tensor.hpp"

namespace tally {

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Begins to replace the elements of `bucket` (dense, f32 or f64) by the sum of those of the first `terms` ranks: of
  // neighbours first, then of neighbouring pairs, and so on; what is left over at the end from the last to the first
  // (tasks/tree_sum.hpp). All ranks begin buckets of the same sizes in the same order. Nothing else touches the
  // elements until finish().
  virtual void begin(const Tensor& bucket, std::int64_t terms) = 0;
  // Goes on with what has been begun, as far as it can without waiting.
  virtual void advance() = 0;
  // Returns when all buckets are sums.
  virtual void finish() = 0;
  // Of the elements of `all` (dense) each rank has the part [begins[rank], begins[rank + 1]); all get all.
  virtual void share(const Tensor& all, const std::vector<std::int64_t>& begins) = 0;
};

// For tensors of the device: over MPI from the CPU's memory, over NCCL from that of GPUs. Throws Error where the latter
// cannot be loaded.
std::unique_ptr<Exchange> make_exchange(const Ranks& ranks, Device device);
std::unique_ptr<Exchange> make_host_exchange(const Ranks& ranks);
// For tensors of a device that only counts (core/meta.cpp): takes the memory that the exchange of the device it stands
// for takes at most, which on the CPU is that of all buckets on their way at once.
std::unique_ptr<Exchange> make_counting_exchange(const Ranks& ranks);

// Where the parts of `elements` begin, one a rank, and the end of the last.
std::vector<std::int64_t> parts_of(std::int64_t elements, std::int64_t ranks);

}  // namespace tally

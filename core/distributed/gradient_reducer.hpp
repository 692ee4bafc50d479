// All-reduce over processes, bucket by bucket, while other work continues.
//
// Each rank sums one part of a bucket: it receives this part from all other ranks, adds them in a fixed tree and sends
// the sum to all. So a rank sends and receives less than twice the bytes of a bucket, for any number of ranks. This is
// reduce-scatter and all-gather (Patarasuk & Yuan 2009), with messages to all others at once instead of a ring. In a
// ring the order of the additions would depend on the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device/device.hpp"
#include "core/distributed/process_group.hpp"
#include "core/tensor.hpp"

namespace tally {

class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  // Begins to replace the elements of `bucket` (dense, f32 or f64) by their sum over the first `terms` ranks.
  // Neighbours are added first, then neighbouring pairs, and so on; remaining sums are added at the end from the last
  // to the first (tasks/training/tree_sum.hpp). All ranks begin buckets of the same sizes in the same order. The
  // elements must not be used until finish().
  virtual void begin(const Tensor& bucket, std::int64_t terms) = 0;
  // Makes progress on all buckets, as far as possible without waiting.
  virtual void advance() = 0;
  // Returns when all buckets are sums.
  virtual void finish() = 0;
  // All-gather: each rank has the part [begins[rank], begins[rank + 1]) of `all` (dense); afterwards every rank has all
  // parts.
  virtual void all_gather(const Tensor& all, const std::vector<std::int64_t>& begins) = 0;
};

// For tensors of `device`: over MPI from host memory, over NCCL from GPU memory. Throws Error if NCCL is needed and
// cannot be loaded.
std::unique_ptr<GradientReducer> make_gradient_reducer(const ProcessGroup& ranks, Device device);
std::unique_ptr<GradientReducer> make_host_reducer(const ProcessGroup& ranks);
// For tensors of the counting device (core/device/meta.cpp): allocates the peak memory of an exchange on the simulated
// device. On the CPU that is the memory of all buckets in flight.
std::unique_ptr<GradientReducer> make_counting_reducer(const ProcessGroup& ranks);

// The offsets at which the parts of `elements` begin, one per rank, followed by the end of the last part.
std::vector<std::int64_t> parts_of(std::int64_t elements, std::int64_t ranks);

}  // namespace tally

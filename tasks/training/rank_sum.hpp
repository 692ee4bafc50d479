// Sums a list of tensors over the ranks that train a run together. Communication begins while the last tensors are
// still being computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/distributed/gradient_reducer.hpp"
#include "core/distributed/process_group.hpp"
#include "core/tensor.hpp"

namespace tally {

class RankSum {
 public:
  // Sums over the first `terms` ranks, in the tree of tree_share(); tensors of the other ranks are ignored. The shapes
  // are the same on all ranks; the type is f32 or f64. Tensors are concatenated in the order of the list and sent in
  // buckets of `bucket_elements` elements. The default 0 is a sixteenth of all elements, between 2^16 and 2^20: little
  // is left to send at the end, and messages are not small. The sums are bit-identical for any bucket size. Keeps
  // references.
  RankSum(const ProcessGroup& ranks, GradientReducer& exchange, std::vector<Shape> shapes, DType dtype, Device device,
          std::int64_t terms, std::int64_t bucket_elements = 0);

  // Sets tensor i of this rank, once for each, in any order; an undefined tensor means zeros. A bucket is sent once it
  // is full and all earlier ones are sent. The order of messages is therefore the same on all ranks, whatever the order
  // of computation.
  void set(std::size_t i, const Tensor& tensor);
  // The sums, once all tensors are set on all ranks; undefined if no rank has any. They share memory.
  std::vector<Tensor> take();

 private:
  void begin_full_buckets();
  std::vector<bool> defined_anywhere() const;

  const ProcessGroup& ranks_;
  GradientReducer& exchange_;
  std::vector<Shape> shapes_;
  std::int64_t terms_, bucket_elements_;
  std::vector<std::int64_t> begins_;  // the offset of each tensor in the elements, and the end of the last
  Tensor elements_;
  std::vector<bool> set_, defined_;
  std::size_t first_missing_ = 0;
  std::int64_t sent_ = 0;  // elements
};

}  // namespace tally

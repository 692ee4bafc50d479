// The sum of a list of tensors over the ranks that train a run together, whose exchange begins while the last of them
// are still being computed.
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
  // Of the first `terms` ranks, in the tree of tree_share(); what the others have does not count. The same shapes on
  // all ranks, f32 or f64. Buckets have so many elements, among which the tensors lie side by side in the order of the
  // list; 0: a sixteenth of all, from 2^16 to 2^20, so that little is left for the end and messages are not small. The
  // sums are the same bits whatever it is. Keeps references.
  RankSum(const ProcessGroup& ranks, GradientReducer& exchange, std::vector<Shape> shapes, DType dtype, Device device,
          std::int64_t terms, std::int64_t bucket_elements = 0);

  // Tensor i of this rank, once for each, in any order; undefined: zeros. A bucket is sent once it is full and those
  // before it are sent, so that the order is that of the list on all ranks, whatever is computed first.
  void set(std::size_t i, const Tensor& tensor);
  // The sums, once all are set here and everywhere; undefined where no rank has any. They share memory.
  std::vector<Tensor> take();

 private:
  void begin_full_buckets();
  std::vector<bool> defined_anywhere() const;

  const ProcessGroup& ranks_;
  GradientReducer& exchange_;
  std::vector<Shape> shapes_;
  std::int64_t terms_, bucket_elements_;
  std::vector<std::int64_t> begins_;  // of each tensor among the elements, and the end of the last
  Tensor elements_;
  std::vector<bool> set_, defined_;
  std::size_t first_missing_ = 0;
  std::int64_t sent_ = 0;  // elements
};

}  // namespace tally

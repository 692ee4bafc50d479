// Sums tensors in a fixed tree, so that the result has the same bits if parts are computed elsewhere or in another
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/distributed/gradient_reducer.hpp"
#include "core/distributed/process_group.hpp"
#include "core/tensor.hpp"

namespace tally {

// Terms are lists of tensors with the same shapes. Neighbours are added first, then neighbouring pairs, then fours. The
// remaining sums at the end are added from the last to the first. The order of additions depends only on the number of
// terms. Holds at most one partial sum for each binary digit of that number.
class TreeSum {
 public:
  // Takes ownership of the tensors and may change their elements. Undefined tensors are zeros.
  void add(std::vector<Tensor> term);
  // The sum of all terms. At least one must exist. The sum is empty afterwards.
  std::vector<Tensor> take();
  // Tensor i of the sum of all terms and one more, the last, whose other tensors need not exist yet. The bits are the
  // same as with add() and take(). Call it once for each i; it ends the sum of tensor i.
  Tensor take_with(std::size_t i, Tensor last);

 private:
  void add_last();  // the last partial sum to the one before it

  std::vector<std::pair<std::int64_t, std::vector<Tensor>>> sums_;  // each with its number of terms
};

// One rank's terms, when several ranks form the sum together. They are contiguous, and their sum is a node of the tree.
// The ranks' sums are then added in a tree. The result has the bits of one TreeSum over all terms.
struct TreeShare {
  std::int64_t first = 0, last = 0;  // the terms [first, last); empty for a rank without terms
  std::int64_t ranks = 1;            // number of ranks with terms: the first ones
};
TreeShare tree_share(std::int64_t terms, std::int64_t ranks, std::int64_t rank);

// Sums a list of tensors over the ranks that train a run together. Communication begins while the last tensors are
// still being computed.

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

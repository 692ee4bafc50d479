// Sums tensors in a fixed tree, so that the result has the same bits if parts are computed elsewhere or in another
// order.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

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

}  // namespace tally

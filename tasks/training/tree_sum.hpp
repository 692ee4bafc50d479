// Sums of tensors in a fixed tree, so that parts which are computed elsewhere or in another order give the same bits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/tensor.hpp"

namespace tally {

// Terms are lists of tensors of the same shapes. Neighbours are added first, then neighbouring pairs, then fours; what
// is left over at the end is added from the last to the first: which additions are made follows from the number of
// terms alone. Holds as many terms as that number has binary digits.
class TreeSum {
 public:
  // Takes the tensors for its own and may change their elements. Undefined ones stand for zeros.
  void add(std::vector<Tensor> term);
  // The sum of all terms, of which there is at least one; begins anew.
  std::vector<Tensor> take();
  // Tensor i of the sum of all terms and one more, the last, of which no more than this tensor is there yet: the bits
  // of add() and take(). Once for each, which ends with it.
  Tensor take_with(std::size_t i, Tensor last);

 private:
  void add_last();  // the last partial sum to the one before it

  std::vector<std::pair<std::int64_t, std::vector<Tensor>>> sums_;  // of so many terms each
};

// The terms of one of several ranks that form the sum together: neighbours, so many that their sum is a number of the
// tree, and the sums of all ranks are added in a tree once more. The bits are those of one TreeSum over all terms.
struct TreeShare {
  std::int64_t first = 0, last = 0;  // the terms [first, last); none of a rank for which nothing is left
  std::int64_t ranks = 1;            // that have terms: the first ones
};
TreeShare tree_share(std::int64_t terms, std::int64_t ranks, std::int64_t rank);

}  // namespace tally

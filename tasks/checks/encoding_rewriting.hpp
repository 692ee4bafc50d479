// Checks whether two encodings are the same function: a first version in composed operations, and its rewriting as a
// policy or in shapes that tiled attention supports.
#pragma once

#include <string>
#include <vector>

#include "tasks/checks/encoding_check.hpp"

namespace tally {

// A variant of the rewriting, and the original with the same options.
struct Rewriting {
  EncodingVariant rewritten;
  EncodingChoice original;
};

// Both choices as they are, then pairs with one option changed at a time (variants_of), for the options that both have.
// An encoding that is in only one choice corresponds to the one that is only in the other: fast+rope and slow+rope
// share the options of fast and slow.
std::vector<Rewriting> rewritings_of(const EncodingChoice& rewritten, const EncodingChoice& original,
                                     const std::vector<std::string>& given = {});

// Compares logits in f64, then the gradients of all parameters in the order in which backward reaches them. The
// rewriting gets the original's parameters under the same names. A finding of kind `wrong` names the first value that
// differs by more than rounding, or the parameters whose names or shapes differ.
Finding compare(const Rewriting& one);

}  // namespace tally

// Whether two encodings are the same function: an idea as it was written first, in composed operations, and its
// rewriting as a policy or in shapes that tiles know.
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

// Both as they are; then, one option changed at a time (variants_of), those that both have. What is in one of the
// choices alone answers for each other: fast+rope and slow+rope have the options of fast and slow in common.
std::vector<Rewriting> rewritings_of(const EncodingChoice& rewritten, const EncodingChoice& original,
                                     const std::vector<std::string>& given = {});

// In f64, with the original's parameters under the same names: logits, then the gradients of all parameters in the
// order in which backward reaches them. What is wrong names the first that differs by more than rounding, or the
// parameters whose names or shapes do.
Finding compare(const Rewriting& one);

}  // namespace tally

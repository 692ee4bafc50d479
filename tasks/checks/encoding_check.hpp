// The checks that an author can run on an encoding without the tests. Each property that every encoding must have is
// checked on a small model (tasks/checks/encoding_model.hpp), with one option changed at a time, with shared key heads,
// and next to a few other encodings. The tests also combine options, and combine every encoding with every other one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tasks/checks/encoding_model.hpp"

namespace tally {

// One property of one variant.
struct Finding {
  enum class Kind { good, wrong, left_out };
  Kind kind = Kind::good;
  std::string text;  // the measurement; the fault and its place; or why nothing was checked
};

struct EncodingProperty {
  std::string name;
  std::string promise;  // one line
  Finding (*look)(const EncodingVariant& variant) = nullptr;
  bool of_each_variant = true;  // otherwise only of the first and the last
};

// gradients, causality, parameters, forms, key-heads, generation, precision, threads, devices, length. look_at throws
// no Error: an Error thrown by the encoding becomes a finding of kind `wrong`.
std::span<const EncodingProperty> encoding_properties();
Finding look_at(const EncodingProperty& property, const EncodingVariant& variant);

// Checks whether two encodings are the same function: a first version in composed operations, and its rewriting as a
// policy or in shapes that tiled attention supports.

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

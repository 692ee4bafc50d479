// The checks that an author can run on an encoding without the tests. Each property that every encoding must have is
// checked on a small model (tasks/checks/encoding_model.hpp), with one option changed at a time. The tests also combine
// options, and combine every encoding with every other one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/io/json.hpp"
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

// gradients, causality, parameters, forms, generation, precision, threads, devices, length. look_at throws no Error: an
// Error thrown by the encoding becomes a finding of kind `wrong`.
std::span<const EncodingProperty> encoding_properties();
Finding look_at(const EncodingProperty& property, const EncodingVariant& variant);

// Cost relative to another encoding, most often `none`, measured in alternating rounds. Returns {"form": "tiled" or
// "composed", "step": a training step of flip-flop's quick preset, "attention": one layer over 2048 tokens}. The last
// two are {"time", "memory"} as multiples of the other's. Throws Error if an encoding is not registered or does not
// accept such a length.
JsonValue cost_beside(const EncodingChoice& choice, const EncodingChoice& other);

}  // namespace tally

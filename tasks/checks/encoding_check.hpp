// What an author must know of an encoding, without the tests: each property that tally promises for all encodings,
// looked at on a small model (tasks/checks/encoding_model.hpp) with each option changed by itself. The tests combine
// options, and put every encoding beside every other one.
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
  std::string text;  // what was measured; what is wrong, and where; why there is nothing to look at
};

struct EncodingProperty {
  std::string name;
  std::string promise;  // one line
  Finding (*look)(const EncodingVariant& variant) = nullptr;
  bool of_each_variant = true;  // else of the first and the last
};

// gradients, causality, parameters, forms, generation, precision, threads, devices, length. A look throws no Error: one
// that the encoding throws is found wrong.
std::span<const EncodingProperty> encoding_properties();
Finding look_at(const EncodingProperty& property, const EncodingVariant& variant);

// What it costs beside another one, most often `none`, measured in turns: {"form": of attention, tiled or composed;
// "step": a training step of flip-flop's quick preset, "attention": one layer's over 2048 tokens}, the last two
// {"time", "memory"} as multiples of the other's. Throws Error for what is not registered, or does not take so long a
// text.
JsonValue cost_beside(const EncodingChoice& choice, const EncodingChoice& other);

}  // namespace tally

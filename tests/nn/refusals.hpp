// The choices of encodings that must be refused: by their traits (EncodingTraits), and because a part refuses when it
// is the only one. Together.OnlyThoseAreLeftOutThatMustBe checks that not all are refused.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "tests/nn/encoding_cases.hpp"

namespace tally::testing {

// One part as the only encoding, on all heads; null if it refuses to act from its first layer on.
inline std::unique_ptr<Encoding> alone(const EncodingChoice& choice, const EncodingChoice::Part& part,
                                       std::int64_t max_length) {
  ModelOptions model;
  model.width = 8, model.heads = 2;
  const Initializer start(1, StartValues::fan_in, DType::f64, default_device());
  EncodingSetup setup = EncodingSetup::of(model, max_length, start);
  setup.first_layer = EncodingChoice::Range::end;
  for (const EncodingChoice::Assignment& assignment : choice.acting()) {
    const bool holds = std::find(assignment.sum.begin(), assignment.sum.end(), part.entry) != assignment.sum.end();
    if (holds) setup.first_layer = std::min(setup.first_layer, assignment.layers.first);
  }
  setup.layer = setup.first_layer;
  try {
    return part.entry->make(setup, *part.options);
  } catch (const Error&) {
    return nullptr;
  }
}

// Whether a part, as the only encoding, has another rule than the softmax.
inline bool sets_softmax_rule(const EncodingChoice& choice, const EncodingChoice::Part& part, std::int64_t max_length) {
  const auto encoding = alone(choice, part, max_length);
  if (encoding == nullptr) return false;
  const Tensor x = normal_tensor("x", {1, 1, 8}), q = normal_tensor("q", {1, 2, 1, 4});
  Score score;
  encoding->score({x, q, q, q, 0.5}, score);
  return !score.softmax_rule.is_softmax();
}

// Whether its option rotated-query is set.
inline bool reads_rotated_query(const EncodingChoice::Part& part) {
  return std::ranges::any_of(list_options(*part.options), [](const OptionInfo& option) {
    return option.name == "rotated-query" && option.value == OptionValue(true);
  });
}

// Whether the encodings cannot act together at any length.
inline bool refused_together(const EncodingChoice& choice, std::int64_t max_length) {
  for (const EncodingChoice::Assignment& assignment : choice.acting()) {
    const auto count = [&](auto&& holds) {
      return std::count_if(assignment.sum.begin(), assignment.sum.end(),
                           [&](const auto* entry) { return holds(entry->traits); });
    };
    // One rule that makes weights of logits.
    const auto weighs = [&](const EncodingChoice::Part& part) {
      const bool acts = std::ranges::count(assignment.sum, part.entry) > 0;
      return acts && (part.entry->traits.replaces_softmax || sets_softmax_rule(choice, part, max_length));
    };
    if (std::ranges::count_if(choice.parts, weighs) > 1) return true;
    // Wide queries and keys do not fit vectors that are as wide as a head.
    const auto needs_width = [&](const EncodingChoice::Part& part) {
      if (std::ranges::count(assignment.sum, part.entry) == 0) return false;
      return part.entry->traits.needs_head_width || reads_rotated_query(part);
    };
    const bool wide = count([](const auto& of) { return of.widens_heads; }) > 0;
    if (wide && std::ranges::any_of(choice.parts, needs_width)) return true;
    if (count([](const auto& of) { return of.mixes; }) > 0 && assignment.sum.size() > 1) return true;
    // Embeddings have no heads, and no layers after the first.
    const bool everywhere = assignment.heads.all() && assignment.layers.first == 0;
    if (count([](const auto& of) { return of.embeds; }) > 0 && !everywhere) return true;
  }
  return std::any_of(choice.parts.begin(), choice.parts.end(),
                     [&](const auto& part) { return alone(choice, part, max_length) == nullptr; });
}

// Whether a part takes no sequences of this length, in a model that was made for those up to max_length.
inline bool refused_for_length(const EncodingChoice& choice, std::int64_t length, std::int64_t max_length) {
  return std::any_of(choice.parts.begin(), choice.parts.end(), [&](const EncodingChoice::Part& part) {
    const auto encoding = alone(choice, part, max_length);
    try {
      if (encoding != nullptr) encoding->check_length(length);
    } catch (const Error&) {
      return true;
    }
    return false;
  });
}

inline bool refused(const EncodingChoice& choice, std::int64_t length, std::int64_t max_length) {
  return refused_together(choice, max_length) || refused_for_length(choice, length, max_length);
}

// The result of `make` for a case, or null if the case must be refused. Then it checks that an error names the
// encoding.
template <class Make>
auto unless_refused(const EncodingCase& one, std::int64_t length, std::int64_t max_length, Make&& make)
    -> decltype(make()) {
  const bool expected = refused(one.choice, length, max_length);
  try {
    auto made = make();
    EXPECT_FALSE(expected) << one.label << " is not refused for " << length << " tokens";
    return made;
  } catch (const Error& error) {
    EXPECT_TRUE(expected) << one.label << " is refused: " << error.what();
    EXPECT_TRUE(names_encodings(error.what(), one.choice)) << error.what();
    return nullptr;
  }
}

}  // namespace tally::testing

// Choices of encodings that are refused. Together.OnlyThoseAreLeftOutThatMustBe checks that few are refused.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/nn/encoding_cases.hpp"

namespace tally::testing {

// Whether the encodings refuse each other, or sequences of this length in a model that was made for those up to
// max_length.
inline bool refused(const EncodingChoice& choice, std::int64_t length, std::int64_t max_length) {
  ModelOptions model;
  model.layers = 2;
  model.width = 8;
  model.heads = 2;
  const Initializer start(1, StartValues::fan_in, DType::f64, default_device());
  EncodingSetup setup = EncodingSetup::of(model, max_length, start);
  try {
    for (setup.layer = 0; setup.layer < model.layers; ++setup.layer) {
      for (const HeadGroup& group : choice.make(setup)) group.encoding->check_length(length);
    }
    return false;
  } catch (const Error& error) {
    EXPECT_TRUE(names_encodings(error.what(), choice)) << error.what();
    return true;
  }
}

// The result of `make` for a case, or null if the case is refused.
template <class Make>
auto unless_refused(const EncodingCase& one, std::int64_t length, std::int64_t max_length, Make&& make)
    -> decltype(make()) {
  try {
    return make();
  } catch (const Error& error) {
    EXPECT_TRUE(refused(one.choice, length, max_length)) << one.label << ": " << error.what();
    return nullptr;
  }
}

}  // namespace tally::testing

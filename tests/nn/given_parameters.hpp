// An encoding with some parameters chosen by a test.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tests/nn/encoding_cases.hpp"

namespace tally::testing {

using Parameters = std::map<std::string, Tensor>;

// With these parameters, of the encoding's own shapes, on the default device; others have their start values, in f64.
inline std::unique_ptr<Encoding> encoding_with(const EncodingChoice& choice, const AttentionSizes& sizes,
                                               const Parameters& parameters) {
  return make_encoding(choice, sizes, [&](std::string_view name, const Shape& shape, const Fill& fill) {
    const auto given = parameters.find(std::string(name));
    if (given == parameters.end()) {
      return Initializer(1, StartValues::fan_in, DType::f64, default_device()).make(name, shape, fill);
    }
    EXPECT_EQ(to_text(given->second.shape()), to_text(shape)) << name;
    return given->second;
  });
}

}  // namespace tally::testing

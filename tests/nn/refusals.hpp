// Which choices of encodings must be refused, said a second time: a test that leaves out a case because of an error
// would else not notice when all of them are refused. An encoding that refuses something must be named here.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "tests/nn/encoding_cases.hpp"

namespace tally::testing {

inline bool sum_has(const EncodingChoice::Piece& piece, const std::set<std::string_view>& names) {
  return std::any_of(piece.sum.begin(), piece.sum.end(),
                     [&](const EncodingEntry* entry) { return names.contains(entry->name); });
}
inline std::int64_t count_in_sum(const EncodingChoice::Piece& piece, const std::set<std::string_view>& names) {
  return std::count_if(piece.sum.begin(), piece.sum.end(),
                       [&](const EncodingEntry* entry) { return names.contains(entry->name); });
}

inline std::string option_of(const EncodingChoice::Part& part, std::string_view name) {
  for (const OptionInfo& info : list_options(*part.options)) {
    if (info.name == name) return to_text(info.value);
  }
  return "";
}

// Whether the encodings cannot act together, whatever the length.
inline bool refused_together(const EncodingChoice& choice) {
  for (const EncodingChoice::Piece& piece : choice.acting()) {
    // One running sum along the keys, one rule that makes weights of logits.
    if (count_in_sum(piece, {"cope", "cope-alibi", "cope-mlp", "stick-breaking"}) > 1) return true;
    if (count_in_sum(piece, {"hard", "stick-breaking"}) > 1) return true;
    // Embeddings have no heads, and no layers after the first.
    const bool everywhere = piece.heads.all() && piece.layers.first == 0;
    if (sum_has(piece, {"absolute", "sinusoidal"}) && !everywhere) return true;
  }
  for (const EncodingChoice::Part& part : choice.parts) {
    if (part.entry->name != "cope-mlp" || option_of(part, "layers") != "first") continue;
    for (const EncodingChoice::Piece& piece : choice.acting()) {
      if (sum_has(piece, {"cope-mlp"}) && piece.layers.first > 0) return true;
    }
  }
  return false;
}

// Whether a table ends before this length, in a model that was made for sequences of max_length.
inline bool refused_for_length(const EncodingChoice& choice, std::int64_t length, std::int64_t max_length) {
  return std::any_of(choice.parts.begin(), choice.parts.end(), [&](const EncodingChoice::Part& part) {
    if (part.entry->name == "absolute") return length > max_length;
    if (part.entry->name != "relative" || option_of(part, "far") != "refuse") return false;
    const std::int64_t distances = std::stoll(option_of(part, "distances"));
    return length > (distances == 0 ? max_length : distances);
  });
}

inline bool refused(const EncodingChoice& choice, std::int64_t length, std::int64_t max_length) {
  return refused_together(choice) || refused_for_length(choice, length, max_length);
}

// What `make` makes of a case, or null where the case must be refused, and is: with an error that says which encoding
// it is about.
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

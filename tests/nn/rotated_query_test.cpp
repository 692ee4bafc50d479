// Option rotated-query in cases in which it can have no effect.
#include <gtest/gtest.h>

#include "tests/error_of.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::rotated_query_test {

using testing::AttentionSizes;
using testing::error_of;
using testing::make_encoding;
using testing::normal_tensor;

// Without a separate product, q is only in the score, in which rotations act anyway.
TEST(RotatedQueries, AreRefusedWhereGatesComeFromTheScore) {
  const auto choice_of = [](const std::string& name, const std::string& gates) {
    EncodingChoice choice = EncodingChoice::parse(name + "+rope");
    choice.set_option(name + ".gates", gates);
    choice.set_option(name + ".rotated-query", "true");
    return choice;
  };
  const auto complaint = [](const EncodingChoice& choice) {
    return error_of([&] {
      make_encoding(choice, AttentionSizes{},
                    [](std::string_view name, const Shape& shape, const Fill&) { return normal_tensor(name, shape); });
    });
  };
  for (const std::string name : {"cope-alibi", "contextual-rotary"}) {
    EXPECT_EQ(complaint(choice_of(name, "keys")),
              formatted("[{}] rotated-query = true has no effect with gates = keys, which come from the score itself; "
                        "it is for gates = sep-keys or values",
                        name));
    for (const std::string gates : {"sep-keys", "values"}) EXPECT_EQ(complaint(choice_of(name, gates)), "");
  }
  for (const std::string name : {"cope", "cope-mlp"}) EXPECT_EQ(complaint(choice_of(name, "keys")), "");
}

}  // namespace tally::rotated_query_test

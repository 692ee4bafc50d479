// Key heads that several query heads share (grouped queries, arXiv 2305.13245). The model equals one whose heads have
// equal keys, and its KV cache has only the key heads.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention/kv_cache.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/refusals.hpp"
#include "tests/nn/small_model.hpp"

namespace tally {
namespace key_heads_test {

using testing::all_cases;
using testing::EncodingCase;
using testing::make_small_model;
using testing::some_tokens;

constexpr std::int64_t length = 9;

using testing::error_of;

// Repeats each block of rows: [n r, ...] -> [n r times, ...]. So the parameters of a key head (of G) become those for
// all query heads that share it.
Tensor repeated(const Tensor& x, const Shape& shape, std::int64_t key_heads) {
  const std::int64_t block = x.numel() / key_heads, times = shape.numel() / x.numel();
  const Tensor blocks = reshape(x, {key_heads, 1, block});
  return reshape(broadcast_to(blocks, {key_heads, times, block}), shape);
}

TEST(KeyHeads, AreThoseOfAllHeadsWithEqualKeys) {
  const NoGrad only_values;
  const Tensor tokens = some_tokens(length);
  for (const EncodingCase& one : all_cases()) {
    if (testing::refused(one.choice, length, length)) continue;
    if (one.choice.parts[0].entry->traits.keys_follow_queries) continue;
    for (const std::int64_t key_heads : {1, 2}) {
      SCOPED_TRACE(formatted("{} heads of keys {}", one.label, key_heads));
      const auto shared = make_small_model(one.choice, "composed", length, key_heads);
      const auto full = make_small_model(one.choice, "composed", length, 4);
      std::map<std::string, Tensor> parameters;
      for (const auto& [path, parameter] : shared->parameters()) parameters[path] = parameter.detach();
      for (auto& [path, parameter] : full->parameters()) {
        const Tensor& own = parameters.at(path);
        parameter.copy_from(own.shape() == parameter.shape() ? own : repeated(own, parameter.shape(), key_heads));
      }
      const std::vector<double> found = shared->forward(tokens).to_vector<double>();
      const std::vector<double> expected = full->forward(tokens).to_vector<double>();
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t n = 0; n < found.size(); ++n) ASSERT_NEAR(found[n], expected[n], 1e-11) << n;
    }
  }
}

TEST(KeyHeads, AreAllThatIsKeptOfEarlierTokens) {
  const NoGrad only_values;
  for (const char* text : {"rope", "cope", "fox", "cope@0-1,alibi@2-3"}) {
    EncodingChoice choice = EncodingChoice::parse(text);
    if (choice.text() == "cope") choice.set_option("gates", "sep-keys");
    GenerationState state;
    make_small_model(choice, "tiled", length, 1)->step(some_tokens(length), state);
    for (const KvCache& layer : state.layers) {
      for (const auto& [name, kept] : layer) {
        if (kept.tensor().rank() != 4) continue;  // as the gates of tokens
        EXPECT_EQ(to_text(kept.tensor().shape()), "[1, 1, 9, 4]") << text << ": " << name;
      }
      const std::string group = choice.assignments.empty() ? "" : "group 1, ";
      EXPECT_TRUE(layer.contains(formatted("{}keys of the product", group)));
    }
  }
}

TEST(KeyHeads, GroupsOfHeadsHaveWholeOnesOrLieWithinOne) {
  const auto error = [](const char* text, std::int64_t heads, std::int64_t key_heads) {
    return error_of([&] { EncodingChoice::parse(text).check_covers(1, heads, key_heads); });
  };
  EXPECT_EQ(error("cope@0-1,alibi@2-3", 4, 2), "");
  EXPECT_EQ(error("cope@0,alibi@1-3", 4, 1), "");
  EXPECT_EQ(error("cope@0-3,alibi@4,rope@5", 6, 3), "");
  EXPECT_EQ(
      error("cope@0,alibi@1-3", 4, 2),
      "[encoding] heads 1-3 share heads of keys unevenly: each is for 2 heads, and a group has whole ones or lies "
      "within one");
}

TEST(KeyHeads, DivideTheHeads) {
  ModelOptions options;
  options.heads = 6, options.width = 24, options.kv_heads = 4;
  EXPECT_EQ(error_of([&] { options.validate(); }), "[model] kv-heads 4 does not divide the 6 heads");
}

}  // namespace key_heads_test
}  // namespace tally

// Norms of queries and keys that a format cannot express.
#include <gtest/gtest.h>

#include <string>

#include "tasks/foreign/foreign_model.hpp"
#include "tests/error_of.hpp"

namespace tally {
namespace qk_norm_test {

TEST(QkNorm, IsRefusedByFormatsThatHaveNone) {
  for (const std::string name : {"gpt2", "llama", "neox"}) {
    RunConfig config = RunConfig::make("flip-flop", name == "gpt2" ? "absolute" : "rope");
    for (const auto& [option, value] : {std::pair{"norm", name == "llama" ? "rms" : "layer"},
                                        {"activation", name == "llama" ? "swiglu" : "gelu"},
                                        {"bias", name == "llama" ? "false" : "true"}}) {
      config.set(std::string("model.") + option, value);
    }
    const auto task = config.make_task();
    const auto error = [&] { return testing::error_of([&] { foreign_config(find_family(name), config, *task); }); };
    EXPECT_EQ(error(), "");
    for (const std::string over : {"head", "full"}) {
      config.set("model.qk-norm", over);
      EXPECT_EQ(error(), "[export] " + name + " cannot say model.qk-norm = " + over);
    }
  }
}

}  // namespace qk_norm_test
}  // namespace tally

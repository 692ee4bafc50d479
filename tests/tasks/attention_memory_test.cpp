// Checks on each kind of device whether memory is linear in the length.
#include "tasks/checks/attention_memory.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/devices.hpp"

namespace tally::attention_memory_test {

AttentionMemory memory_of(const std::string& encoding) {
  const EncodingChoice choice = EncodingChoice::parse(encoding);
  return attention_memory(choice, choice.acting().front());
}

// No CUDA kernel supports keys that every later token changes. If two parts change keys, one becomes a bias.
TEST(AttentionMemory, OfKeysThatMoveIsLinearOnEveryDevice) {
  for (const Device device : {Device{}, testing::on_cuda_host}) {
    set_default_device(device);
    SCOPED_TRACE(to_text(device));
    for (const char* encoding : {"path", "wall", "cope+path", "alibi+wall", "path[window=256]"}) {
      const AttentionMemory memory = memory_of(encoding);
      EXPECT_FALSE(memory.squares) << encoding << " " << memory.bytes;
      EXPECT_EQ(memory.form, "tiled") << encoding;
      EXPECT_LT(memory.bytes, 1.5e9) << encoding;
    }
    for (const char* encoding : {"path+wall", "path+tra"}) EXPECT_TRUE(memory_of(encoding).squares) << encoding;
  }
  set_default_device({});
}

}  // namespace tally::attention_memory_test

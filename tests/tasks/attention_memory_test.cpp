// Checks on each kind of device whether memory is linear in the length.
#include "tasks/checks/attention_memory.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/device/backend.hpp"
#include "tests/devices.hpp"

namespace tally {
namespace attention_memory_test {

AttentionMemory memory_of(const std::string& encoding) {
  const EncodingChoice choice = EncodingChoice::parse(encoding);
  return attention_memory(choice, choice.acting().front());
}

// Keys that every later token changes are a bias of all pairs.
TEST(AttentionMemory, GrowsWithTheSquareForKeysThatMove) {
  for (const Device device : {Device{}, testing::on_cuda_host}) {
    set_default_device(device);
    SCOPED_TRACE(to_text(device));
    for (const char* encoding : {"none", "cope"}) EXPECT_FALSE(memory_of(encoding).squares) << encoding;
    for (const char* encoding : {"path", "wall", "cope+path", "path+wall"}) {
      const AttentionMemory memory = memory_of(encoding);
      EXPECT_TRUE(memory.squares) << encoding << " " << memory.bytes;
      EXPECT_EQ(memory.form, "tiled") << encoding;
    }
  }
  set_default_device({});
}

}  // namespace attention_memory_test
}  // namespace tally

// The command gradcheck.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "nn/encoding.hpp"
#include "tests/devices.hpp"
#include "tests/runner/json_output.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace gradcheck_test {

TEST(GradcheckCommand, ChecksOneEncodingAndItsOptions) {
  const TemporaryFolder folder;
  const Finished result = run_tally({"gradcheck", "--pe=alibi+cope"}, folder);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* part : {"alibi+cope learned=true", "gates=values", "share=layers", "cases agree"}) {
    EXPECT_TRUE(holds(result.out, part)) << part << "\n" << result.out;
  }
  const JsonValue json = json_of(run_tally({"gradcheck", "--pe=alibi", "--json"}, folder));
  EXPECT_EQ(json.integer("failures"), 0);
  EXPECT_EQ(json.elements("cases").front().string("encoding"), "alibi");
}

TEST(GradcheckCommand, ComparesWithTheComposedForm) {
  const TemporaryFolder folder;
  const Finished result = run_tally({"gradcheck", "--pe=cope+rope", "--compare=composed"}, folder);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(holds(result.out, "cope+rope gates=values") && holds(result.out, "tiled and composed attention of 150"))
      << result.out;
  const Finished none = run_tally({"gradcheck", "--pe=dape", "--compare=composed"}, folder);
  EXPECT_TRUE(holds(none.out, "in composed operations alone") && holds(none.out, "no case was compared")) << none.out;
  EXPECT_EQ(run_tally({"gradcheck", "--pe=cope", "--compare=truth"}, folder).code, 2);
}

// Whole models by the kernels against central differences, every encoding with all of its options.
TEST(GradcheckOfEverything, AgreesOnEveryDevice) {
  const TemporaryFolder folder;
  std::vector<Device> devices = kernel_devices();
  devices[0] = Device{};  // where the CPU executes kernels, which takes its time, one of each kind
  for (const char* encoding : {"relative", "cope-alibi", "stick-breaking", "fox", "tra", "selective"}) {
    const std::string pe = concat("--pe=", encoding);
    const JsonValue json = json_of(run_tally({"gradcheck", "--device=cuda-host", pe, "--json"}, folder));
    EXPECT_EQ(json.integer("failures"), 0) << encoding;
    EXPECT_GT(json.elements("cases").size(), 0u) << encoding;
  }
  for (const Device device : devices) {
    const JsonValue json = json_of(run_tally({"gradcheck", "--device=" + to_text(device), "--json"}, folder));
    EXPECT_EQ(json.integer("failures"), 0) << to_text(device);
    std::set<std::string> checked;
    for (const JsonValue& one : json.elements("cases")) checked.insert(one.string("encoding"));
    const auto left_out = std::ranges::count_if(
        encoding_registry(), [&](const EncodingEntry* entry) { return !checked.contains(entry->name); });
    EXPECT_LE(left_out, json.integer("exempt")) << "encodings with gradients by a rule of their own";
  }
}

TEST(GradcheckCommand, SaysThatNothingWasCompared) {
  const TemporaryFolder folder;
  const Finished result = run_tally({"gradcheck", "--pe=hard"}, folder);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(holds(result.out, "hard: gradients by a rule of its own, exempt\nno case was compared\n")) << result.out;
}

}  // namespace gradcheck_test
}  // namespace tally::testing

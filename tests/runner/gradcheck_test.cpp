// The command gradcheck.
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

// Compares gradients of whole models on each device's kernels with central differences.
// Encodings.HaveTheGradientsOfCentralDifferences checks all encodings; these cases check the command.
TEST(GradcheckCommand, AgreesOnEveryDevice) {
  const TemporaryFolder folder;
  std::vector<Device> devices = kernel_devices();
  devices.emplace_back();
  for (const Device device : devices) {
    for (const char* encoding : {"relative", "cope-alibi", "selective"}) {
      SCOPED_TRACE(concat(device, " ", encoding));
      const JsonValue json =
          json_of(run_tally({"gradcheck", "--device=" + to_text(device), concat("--pe=", encoding), "--json"}, folder));
      EXPECT_EQ(json.integer("failures"), 0);
      EXPECT_GT(json.elements("cases").size(), 0u);
    }
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

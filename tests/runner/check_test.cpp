// The commands check and new-encoding; that what the latter prints builds and keeps all promises: tests/own_encoding.
#include <gtest/gtest.h>

#include <string>

#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace {

TEST(CheckCommand, TellsOfEveryPromise) {
  const TemporaryFolder folder;
  const Finished result = run_tally({"check", "--pe=alibi+cope", "--no-costs"}, folder);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* name : {"gradients", "causality", "parameters", "forms", "generation", "precision", "threads",
                           "devices", "length", "all promises are kept"}) {
    EXPECT_TRUE(holds(result.out, name)) << name << "\n" << result.out;
  }
  const Finished json = run_tally({"check", "--pe=hard", "--no-costs", "--json", "--quiet"}, folder);
  const JsonValue found = parse_json(json.out, {}, "stdout");
  EXPECT_EQ(found.integer("wrong"), 0);
  EXPECT_EQ(found.elements("properties").size(), 9u);
  EXPECT_EQ(found.elements("properties")[0].string("found"), "-") << "gradients by a rule of its own";
  EXPECT_EQ(run_tally({"check", "--no-costs"}, folder).code, 2);
  EXPECT_EQ(run_tally({"check", "--pe=rpoe"}, folder).code, 2);
}

TEST(NewEncoding, PrintsAFileUnderItsName) {
  const TemporaryFolder folder;
  const Finished hooks = run_tally({"new-encoding", "my-2nd-idea"}, folder);
  EXPECT_EQ(hooks.code, 0);
  for (const char* part : {"class My2ndIdeaEncoding final", "TALLY_ENCODING(my_2nd_idea, My2ndIdeaEncodingOptions,"}) {
    EXPECT_TRUE(holds(hooks.out, part)) << hooks.out;
  }
  EXPECT_TRUE(
      holds(run_tally({"new-encoding", "my-idea", "--policy"}, folder).out, "TALLY_PAIR(my_idea, MyIdeaPair);"));
  for (const char* name : {"My-idea", "2nd", "my_idea", "-idea", "idea-", "my--idea", "../idea", ""}) {
    EXPECT_EQ(run_tally({"new-encoding", name}, folder).code, 2) << name;
  }
  EXPECT_TRUE(holds(run_tally({"new-encoding", "stick-breaking"}, folder).err, "nn/position/stick_breaking.cpp"));
}

}  // namespace
}  // namespace tally::testing

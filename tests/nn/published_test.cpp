// Attention with encodings compared with numbers of the code that their authors published, or of libraries that copied
// it (tests/reference/published/README.md). Compared are outputs, and gradients of that code's own backward.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/nn/reference_file.hpp"

namespace tally::published_test {

using testing::choice_of;
using testing::expect_equal;
using testing::for_every_file;
using testing::OfFile;

constexpr const char* folder = TALLY_SOURCE_DIR "/tests/reference/published";
constexpr double of_doubles = 1e-12;  // of a tensor's largest magnitude, as all that is written there

class Published : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Published);

void check_file(const SafetensorsFile& file) {
  const Metadata& metadata = file.metadata();
  const std::string& written = metadata.at("tolerance");
  const double tolerance = written == "f64" ? of_doubles : std::stod(written);
  const OfFile own(file);
  Tensor output = testing::attention_output(*own.encoding, own.x, own.q, own.k, own.v, nullptr, own.mask());
  backward(output, file.read("d_output").to(default_device()));
  // Later rows are not the same, and no gradient comes from them.
  if (const auto rows = metadata.find("rows"); rows != metadata.end()) {
    const Tensor expected = file.read("output");
    output = concat({slice(output, 2, 0, std::stoll(rows->second)),
                     slice(expected.to(output.device()), 2, std::stoll(rows->second), expected.size(2))},
                    2);
  }
  expect_equal(output, file, "output", tolerance);
  // For some inputs the code cannot compute the gradient separately.
  EXPECT_GE(own.expect_gradients(file, tolerance), 2);
}

TEST_P(Published, CodeGivesTheSameNumbers) {
  int checked = 0;
  for_every_file(folder, [&](const SafetensorsFile& file) {
    if (!testing::is_asked(choice_of(file))) return;
    check_file(file);
    ++checked;
  });
  if (checked == 0) GTEST_SKIP() << "no published code of the encoding that is asked for";
}

// That no encoding loses its numbers.
TEST(Repository, WhatIsPublishedIsThere) {
  std::set<std::string> seen;
  for_every_file(folder, [&](const SafetensorsFile& file) {
    for (const EncodingChoice::Part& part : choice_of(file).parts) seen.insert(part.entry->name);
  });
  std::istringstream names(
      "alibi bam cope dape dape2 fire fox fox-pro gated grape-a grape-ap grape-m hard kerple mta path pope relative "
      "relative-bank repo rope selective selective-rope sigmoid sink softpick stick-breaking tra transformer-xl wall "
      "xpos");
  for (std::string name; names >> name;) {
    EXPECT_TRUE(seen.contains(name)) << "no numbers of published code for " << name;
  }
}

}  // namespace tally::published_test

// Attention with encodings against numbers of the code that their authors published, or that of libraries which took
// them over (tests/reference/published/README.md): outputs, and gradients as that code's own backward gives them.
#include <gtest/gtest.h>

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
  // Rows behind these are not the same; no gradient comes from them.
  if (const auto rows = metadata.find("rows"); rows != metadata.end()) {
    const Tensor expected = file.read("output");
    output = concat({slice(output, 2, 0, std::stoll(rows->second)),
                     slice(expected.to(output.device()), 2, std::stoll(rows->second), expected.size(2))},
                    2);
  }
  expect_equal(output, file, "output", tolerance);
  // Of some inputs the code cannot give the gradient apart from another's.
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
      "alibi cope dape dape2 fire fox fox-pro gated hard kerple mta path pope relative relative-bank repo rope "
      "selective selective-rope sigmoid sink softpick stick-breaking tra transformer-xl wall xpos");
  for (std::string name; names >> name;) {
    EXPECT_TRUE(seen.contains(name)) << "no numbers of published code for " << name;
  }
}

}  // namespace tally::published_test

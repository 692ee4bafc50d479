// Files of reference values of an encoding (tests/reference/README.md): their descriptions and their tensors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/safetensors.hpp"
#include "tests/devices.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::testing {

inline double largest_of(const Tensor& tensor) {
  double largest = 0;
  for (const double value : tensor.to_vector<double>()) largest = std::max(largest, std::abs(value));
  return largest;
}

// tolerance: of the largest magnitude of the file's tensor.
inline void expect_equal(const Tensor& found, const SafetensorsFile& file, const std::string& name,
                         double tolerance = 1e-10) {
  ASSERT_TRUE(found.defined()) << name;
  const Tensor expected = file.read(name);
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape())) << name;
  double largest = largest_of(expected);
  // The gradient of a bias may be zero up to rounding: its error is relative to its weight's gradient too.
  if (name.starts_with("d_") && name.ends_with(".bias")) {
    const std::string weight = name.substr(0, name.size() - 4) + "weight";
    if (file.find(weight) != nullptr) largest = std::max(largest, largest_of(file.read(weight)));
  }
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  double worst = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (!(std::abs(a[n] - b[n]) <= worst)) worst = std::abs(a[n] - b[n]);
  }
  EXPECT_LE(worst, tolerance * largest) << name;
}

inline EncodingChoice choice_of(const SafetensorsFile& file) {
  const Metadata& metadata = file.metadata();
  EncodingChoice choice = EncodingChoice::parse(metadata.at("encoding"));
  for (const auto& [key, value] : metadata) {
    if (key.starts_with("option.")) choice.set_option(key.substr(7), value);
  }
  return choice;
}

// The encoding of a file with its inputs and parameters, which wait for gradients. q, k and v are undefined where the
// encoding acts on embeddings.
struct OfFile {
  EncodingChoice choice;
  std::map<std::string, Tensor> leaves;  // by their names in the file
  std::unique_ptr<Encoding> encoding;
  Tensor x, q, k, v;

  explicit OfFile(const SafetensorsFile& file) : choice(choice_of(file)) {
    const auto leaf = [&](const std::string& name) {
      Tensor tensor = file.read(name).to(default_device());
      set_requires_grad(tensor);
      return leaves[name] = tensor;
    };
    x = leaf("x");
    const bool is_attention = file.find("q") != nullptr;
    AttentionSizes sizes;
    sizes.max_length = std::stoll(file.metadata().at("max-length"));
    sizes.batch = x.size(0);
    sizes.length = x.size(1);
    if (is_attention) sizes.heads = file.find("q")->shape[1];
    sizes.head_width = x.size(2) / sizes.heads;
    encoding = make_encoding(choice, sizes, [&](std::string_view name, const Shape& shape, const Fill&) {
      // "table" means "cope.table" if cope is the only encoding.
      const std::string_view in_file = choice.parts.size() == 1 ? name.substr(name.find('.') + 1) : name;
      const Tensor parameter = leaf(std::string(in_file));
      EXPECT_EQ(to_text(parameter.shape()), to_text(shape)) << name;
      return parameter;
    });
    if (!is_attention) return;
    q = leaf("q");
    k = leaf("k");
    v = leaf("v");
  }

  AttentionMask mask() const { return choice.acting().front().mask; }

  // Compares the file's gradients with the leaves', after `backward`. Returns their number.
  int expect_gradients(const SafetensorsFile& file, double tolerance = 1e-10) const {
    int gradients = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      if (!entry.name.starts_with("d_") || entry.name == "d_output") continue;
      expect_equal(gradient(leaves.at(entry.name.substr(2))), file, entry.name, tolerance);
      ++gradients;
    }
    return gradients;
  }
};

// check(file) for every file of this folder that speaks of an encoding.
template <class Check>
void for_every_file(const std::string& folder, Check&& check) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file = SafetensorsFile::open(entry.path().string());
    if (!file.metadata().contains("max-length")) continue;  // of another kind
    SCOPED_TRACE(entry.path().filename().string());
    check(file);
  }
}

}  // namespace tally::testing

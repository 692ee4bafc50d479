// A program with an encoding of its own with a score modification (tests/own_encoding/counted_decay.cpp), against an
// installed tally. Exit status 0 when its tiled form, on the CPU and by the kernels, is the composed one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <tally/tally.hpp>

namespace tally::registry {
const EncodingEntry& encoding_counted_decay();  // of TALLY_ENCODING
}

namespace {

std::vector<double> logits_of(const std::string& attention, const std::string& device) {
  const tally::EncodingEntry& entry = tally::registry::encoding_counted_decay();
  tally::EncodingChoice encoding;
  encoding.parts.push_back({&entry, entry.make_options()});

  constexpr std::int64_t length = 70, vocabulary = 5;
  tally::ModelOptions options;
  options.layers = 1;
  options.width = 16;
  options.heads = 2;
  options.attention = attention;
  const tally::Device where = tally::device_from_text(device);
  tally::Transformer model(options, encoding, vocabulary, length, /*seed=*/1, tally::DType::f64, where);
  std::vector<std::int32_t> tokens;
  for (std::int64_t n = 0; n < length; ++n) tokens.push_back(static_cast<std::int32_t>(n * n % vocabulary));
  const tally::NoGrad only_values;
  return model.forward(tally::Tensor::from(tokens, {1, length}, where)).to(tally::Device{}).to_vector<double>();
}

}  // namespace

int main() {
  const std::vector<double> expected = logits_of("composed", "cpu");
  double largest = 0;
  for (const char* device : {"cpu", "cuda-host"}) {
    const std::vector<double> found = logits_of("tiled", device);
    for (std::size_t n = 0; n < expected.size(); ++n) largest = std::max(largest, std::abs(found[n] - expected[n]));
  }
  std::cout << "tiled and composed differ by " << largest << '\n';
  return largest < 1e-12 ? 0 : 1;
}

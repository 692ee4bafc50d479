// Attention with each encoding against values made in another language from the formulas (tests/reference/README.md):
// rotated q and k, scores, gates, positions, logits, weights, output and all gradients.
#include <gtest/gtest.h>

#include "tests/nn/reference_file.hpp"

namespace tally::reference_test {

using testing::attention_output;
using testing::AttentionSizes;
using testing::choice_of;
using testing::encoded_attention;
using testing::expect_equal;
using testing::for_every_file;
using testing::make_encoding;
using testing::OfFile;

constexpr const char* folder = TALLY_SOURCE_DIR "/tests/reference";

// Numbers of masked pairs have no meaning: 0 here, as in the files.
Tensor of_seen(const Tensor& x, const AttentionMask& mask = {}) {
  std::vector<double> seen;
  for (std::int64_t i = 0; i < x.size(2); ++i) {
    for (std::int64_t j = 0; j < x.size(3); ++j) seen.push_back(mask.attends(i, j) ? 1 : 0);
  }
  return x * Tensor::from(seen, {x.size(2), x.size(3)}, x.device());
}

// The inputs of the weights, if the file holds them.
void expect_equal_logits(const Encoding& encoding, const AttentionInput& in, const SafetensorsFile& file) {
  const NoGrad only_values;
  const auto [operands, score] = encoded_attention(encoding, in);
  if (file.find("rotated_q") != nullptr) {
    expect_equal(operands.q, file, "rotated_q");
    expect_equal(operands.k, file, "rotated_k");
  }
  const double scale = operands.scale * score.factor;
  expect_equal(of_seen(matmul(operands.q, transpose(operands.k, -1, -2), scale)), file, "s");
  const Tensor logits = of_seen(composed_logits(operands, score), in.mask);
  const Tensor none = Tensor::zeros({1}, logits.dtype(), logits.device());
  const Tensor lowest =
      none + std::numeric_limits<float>::lowest();  // where a score modification gives a pair no weight
  expect_equal(where(less_equal(logits, lowest), none, logits), file, "logits");
}

void check_file(const SafetensorsFile& file) {
  const OfFile own(file);
  AttentionTrace trace;
  Tensor output;
  if (own.q.defined()) {
    AttentionInput in{own.x, own.q, own.k, own.v, 1.0 / std::sqrt(static_cast<double>(own.q.size(3)))};
    in.mask = own.mask();
    expect_equal_logits(*own.encoding, in, file);
    output = attention_output(*own.encoding, own.x, own.q, own.k, own.v, &trace, in.mask);
    expect_equal(trace.weights, file, "weights");
  } else {
    output = own.encoding->embed(own.x, {});
  }
  expect_equal(output, file, "output");
  if (file.find("gates") != nullptr) expect_equal(trace.gates, file, "gates");
  if (file.find("positions") != nullptr) expect_equal(trace.positions, file, "positions");

  backward(output, file.read("d_output").to(default_device()));
  // x has no gradient where the encoding does not read it.
  const int expected = static_cast<int>(own.leaves.size()) - (gradient(own.x).defined() ? 0 : 1);
  EXPECT_EQ(own.expect_gradients(file), expected);
}

// "cope.share=none". A number or a text counts as default or other.
std::string setting(const EncodingEntry& entry, const OptionInfo& info, const std::string& value) {
  return formatted("{}.{}={}", entry.name, info.name, value);
}
constexpr const char* another = "another";

bool has_any_value(const OptionInfo& info) { return info.allowed.empty() && !std::holds_alternative<bool>(info.value); }

// The encodings that have a part in this choice, and the settings of their options.
std::set<std::string> settings_of(const EncodingChoice& choice) {
  std::set<std::string> settings;
  for (const EncodingChoice::Part& part : choice.parts) {
    settings.insert(part.entry->name);
    const bool beside_rotation = std::any_of(choice.parts.begin(), choice.parts.end(), [&](const auto& other) {
      return other.entry != part.entry && other.entry->traits.rotates;
    });
    const std::vector<OptionInfo> infos = list_options(*part.options),
                                  at_first = list_options(*part.entry->make_options());
    for (std::size_t n = 0; n < infos.size(); ++n) {
      if (infos[n].name == "rotated-query" && !beside_rotation) continue;  // means nothing there
      const bool moved = has_any_value(infos[n]) && to_text(infos[n].value) != to_text(at_first[n].value);
      settings.insert(setting(*part.entry, infos[n], moved ? another : to_text(infos[n].value)));
    }
  }
  return settings;
}

// Reference values are required for each encoding, each value of its choices and flags, and numbers and texts other
// than the defaults.
std::set<std::string> all_settings() {
  std::set<std::string> settings;
  for (const EncodingEntry* entry : encoding_registry()) {
    settings.insert(entry->name);
    for (const OptionInfo& info : list_options(*entry->make_options())) {
      std::vector<std::string> values = info.allowed;
      if (std::holds_alternative<bool>(info.value)) values = {"false", "true"};
      if (has_any_value(info)) values = {another};
      for (const std::string& value : values) settings.insert(setting(*entry, info, value));
    }
  }
  return settings;
}

class Reference : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Reference);

TEST_P(Reference, EveryFileIsReproduced) {
  for_every_file(folder, [](const SafetensorsFile& file) {
    if (testing::is_asked(choice_of(file))) check_file(file);
  });
}

TEST(Repository, EveryEncodingAndOptionHasReferenceValues) {
  std::set<std::string> seen;
  for_every_file(folder, [&](const SafetensorsFile& file) { seen.merge(settings_of(choice_of(file))); });
  for (const std::string& wanted : all_settings()) {
    EXPECT_TRUE(seen.contains(wanted)) << "no reference values for " << wanted << " (tests/reference/README.md)";
  }
}

// Biases that are the numbers of their buckets show the bucket of each distance.
TEST_P(Reference, T5Buckets) {
  const SafetensorsFile file = SafetensorsFile::open(TALLY_SOURCE_DIR "/tests/reference/t5-buckets.safetensors");
  AttentionSizes sizes;
  sizes.length = file.find("buckets")->shape[0];
  const auto encoding =
      make_encoding(EncodingChoice::parse("t5"), sizes, [](std::string_view, const Shape& shape, const Fill&) {
        return broadcast_to(cumsum(Tensor::full({shape[1]}, 1.0, DType::f64, default_device())) - 1.0, shape);
      });
  const Tensor x = Tensor::zeros({1, sizes.length, sizes.width()}, DType::f64, default_device()),
               q = split_heads(x, sizes.heads);
  Score score;
  encoding->score({x, q, q, q, 1.0}, score);
  expect_equal(select(std::get<Toeplitz>(score.biases.at(0)).bias, 0, 1), file, "buckets");
}

// Slopes for numbers of heads that are no powers of two.
TEST_P(Reference, AlibiSlopes) {
  const SafetensorsFile file = SafetensorsFile::open(TALLY_SOURCE_DIR "/tests/reference/alibi-slopes.safetensors");
  EncodingChoice choice = EncodingChoice::parse("alibi");
  choice.set_option("learned", "true");
  for (const SafetensorsEntry& entry : file.entries()) {
    AttentionSizes sizes;
    sizes.heads = entry.shape[0];
    Tensor slopes;
    make_encoding(choice, sizes, [&](std::string_view name, const Shape& shape, const Fill& fill) {
      return slopes = Initializer(0, StartValues::gpt2, DType::f64, default_device()).make(name, shape, fill);
    });
    expect_equal(slopes, file, entry.name);
  }
}

}  // namespace tally::reference_test

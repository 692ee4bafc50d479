// Attention with each encoding against values made in another language from the formulas (tests/reference/README.md):
// rotated q and k, scores, gates, positions, logits, weights, output and all gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "core/io/safetensors.hpp"
#include "tests/devices.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally {
namespace {

using testing::attention_output;
using testing::AttentionSizes;
using testing::encoded_attention;
using testing::make_encoding;

constexpr double tolerance = 1e-10;  // of the tensor's largest magnitude

double largest_of(const Tensor& tensor) {
  double largest = 0;
  for (const double value : tensor.to_vector<double>()) largest = std::max(largest, std::abs(value));
  return largest;
}

void expect_equal(const Tensor& found, const SafetensorsFile& file, const std::string& name) {
  ASSERT_TRUE(found.defined()) << name;
  const Tensor expected = file.read(name);
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape())) << name;
  double largest = largest_of(expected);
  // The gradient of a bias may be zero but for rounding: it is measured against that of its weight too.
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

// The names of the file without the encoding's: "table" stands for "cope.table" where cope is alone.
std::string name_in_file(const EncodingChoice& choice, std::string_view name) {
  return std::string(choice.parts.size() == 1 ? name.substr(name.find('.') + 1) : name);
}

// What is of pairs that are not seen means nothing: 0 there, as in the files.
Tensor of_seen(const Tensor& x, const Visible& visible = {}) {
  std::vector<double> seen;
  for (std::int64_t i = 0; i < x.size(2); ++i) {
    for (std::int64_t j = 0; j < x.size(3); ++j) seen.push_back(visible.sees(i, j) ? 1 : 0);
  }
  return x * Tensor::from(seen, {x.size(2), x.size(3)}, x.device());
}

// What goes into the weights, where the file holds it.
void expect_equal_logits(const Encoding& encoding, const AttentionInput& in, const SafetensorsFile& file) {
  const NoGrad only_values;
  const auto [operands, score] = encoded_attention(encoding, in);
  if (file.find("rotated_q") != nullptr) {
    expect_equal(operands.q, file, "rotated_q");
    expect_equal(operands.k, file, "rotated_k");
  }
  const double scale = operands.scale * score.factor;
  expect_equal(of_seen(matmul(operands.q, transpose(operands.k, -1, -2), scale)), file, "s");
  const Tensor logits = of_seen(composed_logits(operands, score), in.visible);
  const Tensor none = Tensor::zeros({1}, logits.dtype(), logits.device());
  const Tensor lowest = none + std::numeric_limits<float>::lowest();  // where a policy gives a pair no weight
  expect_equal(where(less_equal(logits, lowest), none, logits), file, "logits");
}

EncodingChoice choice_of(const SafetensorsFile& file) {
  const Metadata& metadata = file.metadata();
  EncodingChoice choice = EncodingChoice::parse(metadata.at("encoding"));
  for (const auto& [key, value] : metadata) {
    if (key.starts_with("option.")) choice.set_option(key.substr(7), value);
  }
  return choice;
}

void check_file(const SafetensorsFile& file) {
  const Metadata& metadata = file.metadata();
  const EncodingChoice choice = choice_of(file);
  std::map<std::string, Tensor> leaves;
  const auto leaf = [&](const std::string& name) {
    Tensor tensor = file.read(name).to(default_device());
    set_requires_grad(tensor);
    return leaves[name] = tensor;
  };
  const Tensor x = leaf("x");
  const bool is_attention = file.find("q") != nullptr;
  AttentionSizes sizes;
  sizes.max_length = std::stoll(metadata.at("max-length"));
  sizes.batch = x.size(0);
  sizes.length = x.size(1);
  if (is_attention) sizes.heads = file.find("q")->shape[1];
  sizes.head_width = x.size(2) / sizes.heads;
  const auto encoding = make_encoding(choice, sizes, [&](std::string_view name, const Shape& shape, const Fill&) {
    const Tensor parameter = leaf(name_in_file(choice, name));
    EXPECT_EQ(to_text(parameter.shape()), to_text(shape)) << name;
    return parameter;
  });

  AttentionTrace trace;
  Tensor output;
  if (is_attention) {
    const Tensor q = leaf("q"), k = leaf("k"), v = leaf("v");
    AttentionInput in{x, q, k, v, 1.0 / std::sqrt(static_cast<double>(q.size(3)))};
    in.visible = choice.acting().front().visible;
    expect_equal_logits(*encoding, in, file);
    output = attention_output(*encoding, x, q, k, v, &trace, in.visible);
    expect_equal(trace.weights, file, "weights");
  } else {
    output = encoding->embed(x, {});
  }
  expect_equal(output, file, "output");
  if (file.find("gates") != nullptr) expect_equal(trace.gates, file, "gates");
  if (file.find("positions") != nullptr) expect_equal(trace.positions, file, "positions");

  backward(output, file.read("d_output").to(default_device()));
  int gradients = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!entry.name.starts_with("d_") || entry.name == "d_output") continue;
    expect_equal(gradient(leaves.at(entry.name.substr(2))), file, entry.name);
    ++gradients;
  }
  // x has no gradient where the encoding does not read it.
  const int expected = static_cast<int>(leaves.size()) - (gradient(x).defined() ? 0 : 1);
  EXPECT_EQ(gradients, expected);
}

// "cope.share=none". A number or a text is one of two kinds: as it is set at first, or another.
std::string setting(const EncodingEntry& entry, const OptionInfo& info, const std::string& value) {
  return concat(entry.name, ".", info.name, "=", value);
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

// All that reference values must be there for: each encoding, each value of its choices and flags, numbers and texts
// off their start.
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

template <class Check>
void for_every_file(Check&& check) {
  for (const auto& entry : std::filesystem::directory_iterator(TALLY_SOURCE_DIR "/tests/reference")) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file = SafetensorsFile::open(entry.path().string());
    if (!file.metadata().contains("max-length")) continue;  // not of an encoding
    SCOPED_TRACE(entry.path().filename().string());
    check(file);
  }
}

TEST_P(Reference, EveryFileIsReproduced) {
  for_every_file([](const SafetensorsFile& file) {
    if (testing::is_asked(choice_of(file))) check_file(file);
  });
}

TEST(Repository, EveryEncodingAndOptionHasReferenceValues) {
  std::set<std::string> seen;
  for_every_file([&](const SafetensorsFile& file) { seen.merge(settings_of(choice_of(file))); });
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

}  // namespace
}  // namespace tally

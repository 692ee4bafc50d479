// Models of other libraries: compares their logits with those from `transformers` (tests/reference/foreign), also with
// encodings in addition to a model's own.

#include "tests/tasks/foreign_folder.hpp"

namespace tally::testing::foreign_models_test {

class ForeignModels : public ::testing::TestWithParam<const char*> {};

// In f64 the remaining difference comes from transformers, which computes angles in f32 for any type of model. Angles
// up to 13 are rounded by up to 13 2^-24 = 8e-7. In f32 the rule for kernels applies: at most twice the error of the
// plain implementation. Each error is relative to the library's own f64, because both of its forms round the angles.
// The reference's error is the largest of several runs (make_foreign.py).
TEST_P(ForeignModels, HaveTheLogitsOfTheirOwnLibrary) {
  const std::string folder = folder_of(GetParam());
  const SafetensorsFile reference = SafetensorsFile::open(folder + "/logits.safetensors");
  const Tensor tokens = reference.read("tokens"), expected = reference.read("logits");
  const Tensor exact = logits_of(folder, tokens, {{"dtype", "f64"}});
  EXPECT_LE(difference(exact, expected), 1e-6 * largest(expected));
  EXPECT_LE(difference(logits_of(folder, tokens), exact), 2 * reference.read("error_f32").item());
}

// A table of zeros changes nothing; reference attention is equal in every bit.
TEST_P(ForeignModels, AreTheSameFunctionWithContextualPositionsAdded) {
  const std::string folder = folder_of(GetParam());
  const Tensor tokens = SafetensorsFile::open(folder + "/logits.safetensors").read("tokens");
  const std::string pe = read_description(folder).model.encoding + "+cope";
  const Settings composed{{"model.attention", "composed"}};
  const Tensor alone = logits_of(folder, tokens, composed), with = logits_of(folder, tokens, composed, pe);
  EXPECT_EQ(alone.to_vector<double>(), with.to_vector<double>());
  const double error = SafetensorsFile::open(folder + "/logits.safetensors").read("error_f32").item();
  EXPECT_LE(difference(logits_of(folder, tokens, {}, pe), alone), 3 * error);  // both round
}

// While the table is zero, no gate changes a score. The first step moves only the table, and gates follow later.
TEST_P(ForeignModels, TrainTheTableBeforeTheGates) {
  const std::string folder = folder_of(GetParam());
  const ForeignDescription description = read_description(folder);
  RunConfig config = config_of(description, description.model.encoding + "+cope");
  config.set("pe.cope.gates", "sep-keys");
  const ForeignLoaded loaded = load_foreign(folder, description, config);
  const Tensor tokens = SafetensorsFile::open(folder + "/logits.safetensors").read("tokens");
  const Tensor logits = loaded.model->forward(tokens);
  backward(sum(logits * logits));
  int tables = 0, gates = 0;
  for (const auto& [name, parameter] : loaded.model->parameters()) {
    if (!contains(name, ".cope.")) continue;
    const bool table = contains(name, "table");
    const Tensor moved = gradient(parameter);
    const double most = moved.defined() ? largest(moved.to(DType::f64)) : 0;
    (table ? tables : gates) += 1;
    EXPECT_EQ(most > 0, table) << name;
  }
  EXPECT_GT(tables, 0);
  EXPECT_GT(gates, 0);
}

// An exported model is read back to the same bytes.
TEST_P(ForeignModels, AreWrittenAsTheyWereRead) {
  const std::string folder = folder_of(GetParam());
  const ForeignDescription description = read_description(folder);
  const RunConfig config = config_of(description, "");
  const ForeignLoaded loaded = load_foreign(folder, description, config);
  EXPECT_TRUE(loaded.not_in_file.empty());
  const ForeignWeights weights = ForeignWeights::open(folder);
  const NamedTensors written = foreign_tensors(*description.family, config.model, loaded.model->parameters());
  EXPECT_EQ(written.size(), weights.tensors().size());
  for (const auto& [name, tensor] : written) {
    const Tensor read = weights.tensors().at(name).file->read_widened(name);
    EXPECT_EQ(read.shape(), tensor.shape()) << name;
    EXPECT_EQ(read.to_vector<float>(), tensor.to_vector<float>()) << name;
  }
}

std::string name_of_case(const ::testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Reference, ForeignModels,
                         ::testing::Values("gpt2", "gpt2-wide", "llama", "llama-grouped", "llama-shards",
                                           "llama-biased", "neox", "neox-sequential"),
                         name_of_case);

// All 16-bit numbers.
TEST(ForeignNumbers, AreWidenedExactly) {
  const TemporaryFolder folder;
  const std::string path = (fs::path(folder.path()) / "all.safetensors").string();
  for (const bool half : {true, false}) {
    const std::string header = formatted("{{\"x\":{{\"dtype\":\"{}\",\"shape\":[65536],\"data_offsets\":[0,131072]}}}}",
                                         half ? "F16" : "BF16");
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    bytes += header;
    for (int n = 0; n < 65536; ++n) bytes += {static_cast<char>(n & 255), static_cast<char>(n >> 8)};
    put(path, bytes);
    const std::vector<float> values = SafetensorsFile::open(path).read_widened("x").to_vector<float>();
    const int fraction_bits = half ? 10 : 7, bias = half ? 15 : 127, most = half ? 31 : 255;
    for (int n = 0; n < 65536; ++n) {
      const int exponent = n >> fraction_bits & most, fraction = n & ((1 << fraction_bits) - 1);
      const double part = std::ldexp(fraction, -fraction_bits);
      const double size = exponent == 0      ? std::ldexp(part, 1 - bias)
                          : exponent == most ? (fraction == 0 ? INFINITY : NAN)
                                             : std::ldexp(1 + part, exponent - bias);
      const double expected = (n & 0x8000) != 0 ? -size : size;
      const auto value = static_cast<double>(values[static_cast<std::size_t>(n)]);
      ASSERT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << n;
      ASSERT_EQ(std::signbit(value), (n & 0x8000) != 0) << n;
    }
  }
}

}  // namespace tally::testing::foreign_models_test

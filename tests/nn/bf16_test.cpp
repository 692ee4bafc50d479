// Gradients with bf16 matmuls. They are as near to f64 as PyTorch's autocast of the same model, by a median over draws
// of each (tests/reference/autocast_errors.py), and have the same bits for any number of threads.
#include <gtest/gtest.h>

#include "core/cpu/parallel.hpp"
#include "core/io/json.hpp"
#include "core/io/reader.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::testing::bf16_test {

constexpr std::int64_t symbols = 7, length = 64, sequences = 2;

class Bf16 : public ::testing::Test {
 protected:
  ~Bf16() override {
    set_matmul_precision(MatmulPrecision::f32);
    set_thread_count(threads_);
  }

 private:
  int threads_ = thread_count();
};

// The model of autocast_errors.py, the same numbers in any type for the same draw.
struct Model {
  Model(const std::string& encoding, int draw, DType dtype, Device device = {})
      : Model(EncodingChoice::parse(encoding), draw, dtype, device) {}
  Model(const EncodingChoice& choice, int draw, DType dtype, Device device = {}, std::int64_t key_heads = 0,
        const std::string& qk_norm = "none")
      : on(device) {
    ModelOptions options;
    options.kv_heads = key_heads;
    options.qk_norm = qk_norm;
    options.layers = 2;
    options.width = 64;
    options.heads = 4;
    options.init = "fan-in";
    const auto seed = static_cast<std::uint64_t>(draw);
    transformer = std::make_unique<Transformer>(options, choice, symbols, length, seed, dtype, on);
    for (auto& [path, parameter] : transformer->parameters()) {
      const Tensor noise = normal_tensor(formatted("{} {}", path, draw), parameter.shape(), 0.1);
      parameter.copy_from(add(parameter.detach(), noise.to(dtype).to(on)));
    }
    transformer->project_parameters();
  }

  std::vector<double> gradients(int draw) const {
    Rng rng({static_cast<std::uint64_t>(draw), stream_of("tokens"), 0});
    std::vector<std::int32_t> ids, next;
    for (std::int64_t n = 0; n < sequences * length; ++n) {
      ids.push_back(static_cast<std::int32_t>(rng.below(symbols)));
      next.push_back(static_cast<std::int32_t>(rng.below(symbols)));
    }
    const Tensor logits = transformer->forward(Tensor::from(ids, {sequences, length}, on));
    const Tensor all = Tensor::full({sequences, length}, 1, DType::boolean, on);
    backward(cross_entropy(logits, Tensor::from(next, {sequences, length}, on), all));
    std::vector<double> numbers;
    for (const auto& [path, parameter] : transformer->parameters()) {
      const Tensor d = gradient(parameter);
      if (!d.defined()) continue;
      const std::vector<double> own = d.to(DType::f64).to_vector<double>();
      numbers.insert(numbers.end(), own.begin(), own.end());
    }
    return numbers;
  }

  std::unique_ptr<Transformer> transformer;
  Device on;
};

// |g - g64| / |g64| over all parameters together.
double relative_error(const std::vector<double>& found, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t n = 0; n < found.size(); ++n) {
    difference += (found[n] - expected[n]) * (found[n] - expected[n]);
    size += expected[n] * expected[n];
  }
  return std::sqrt(difference / size);
}

double error_of(const std::string& encoding, int draw, Device device = {}, std::int64_t key_heads = 0,
                const std::string& qk_norm = "none") {
  const auto gradients = [&](DType dtype, Device on) {
    return Model(EncodingChoice::parse(encoding), draw, dtype, on, key_heads, qk_norm).gradients(draw);
  };
  set_matmul_precision(MatmulPrecision::f32);
  const std::vector<double> expected = gradients(DType::f64, {});
  set_matmul_precision(MatmulPrecision::bf16);
  return relative_error(gradients(DType::f32, device), expected);
}

TEST_F(Bf16, GradientsAreAsNearAsThoseOfPyTorchsAutocast) {
  const JsonValue file =
      parse_json(read_text(TALLY_SOURCE_DIR "/tests/reference/autocast.json", 1 << 20), {}, "autocast.json");
  const JsonValue& errors = file.at("errors");
  for (const EncodingEntry* entry : encoding_registry()) {
    const std::string name = entry->name;
    if (!is_asked(EncodingChoice::parse(name)) || Model(name, 0, DType::f64).transformer->straight_through()) continue;
    std::vector<double> draws;
    for (int draw = 1; draw <= 3; ++draw) draws.push_back(error_of(name, draw));
    std::sort(draws.begin(), draws.end());
    // An encoding that the peer lacks is measured by attention without one.
    const double theirs = errors.at(errors.contains(name) ? name : "none").real();
    EXPECT_LE(draws[1], 2 * theirs) << name;
    EXPECT_GE(draws[1], theirs / 20) << name << ": nothing is rounded";
  }
}

// With any options, in combinations, in windows, with few key heads: operands that only matmuls may read are not read
// by other operations, and no gradient is lost or counted twice. The test above measures the errors (softpick, which is
// steepest, has 0.13 here).
TEST_F(Bf16, EveryOptionHasGradients) {
  const auto gradients = [&](const EncodingChoice& choice, std::int64_t key_heads, DType dtype) {
    set_matmul_precision(dtype == DType::f64 ? MatmulPrecision::f32 : MatmulPrecision::bf16);
    return Model(choice, 1, dtype, {}, key_heads).gradients(1);
  };
  const auto error_of_case = [&](const EncodingChoice& choice, std::int64_t key_heads) {
    std::vector<double> exact;
    try {
      exact = gradients(choice, key_heads, DType::f64);
    } catch (const Error&) {
      return 0.0;  // no option for this length, or for heads that share keys
    }
    return relative_error(gradients(choice, key_heads, DType::f32), exact);
  };
  std::vector<EncodingCase> cases;
#ifndef TALLY_SANITIZED  // sums and windows are enough for memory and threads
  cases = every(4, all_cases());
#endif
  for (EncodingCase& one : asked(windowed_cases())) cases.push_back(std::move(one));
  for (const std::string sum : {"cope+rope", "rope+fox", "alibi+cope", "relative+fox", "sink+rope", "t5+xpos"}) {
    cases.push_back({EncodingChoice::parse(sum), sum});
  }
  std::size_t measured = 0;
  const std::vector<EncodingCase> own = asked(std::move(cases));
  for (const EncodingCase& one : own) {
    const Model model(one.choice, 0, DType::f64);
    if (model.transformer->straight_through()) continue;
    for (const std::int64_t key_heads : {0, 2}) {
      if (key_heads != 0 && one.label.find(' ') != std::string::npos) continue;
      const double error = error_of_case(one.choice, key_heads);
      EXPECT_LE(error, 0.2) << one.label << ", heads of keys: " << key_heads;
      measured += error > 0.001 ? 1 : 0;
    }
  }
  EXPECT_GE(measured, own.size() / 2);
}

// With norms of queries and keys the norms write bf16 for the matmuls, and the projections f32 for the norms.
TEST_F(Bf16, NormsOfQueriesAndKeysCostNoPrecision) {
  for (const std::string name : {"none", "rope", "cope", "fox-pro"}) {
    const double without = error_of(name, 1);
    for (const auto& [qk_norm, key_heads] : {std::pair{"head", 2}, {"full", 0}}) {
      const double found = error_of(name, 1, {}, key_heads, qk_norm);
      EXPECT_LE(found, 3 * without) << name << " " << qk_norm;
      EXPECT_GE(found, without / 10) << name << " " << qk_norm << ": nothing is rounded";
    }
  }
}

TEST_F(Bf16, GradientsOfTheCudaKernelsAreAsNear) {
  if (testing::only_small_kernels(testing::on_cuda_host)) GTEST_SKIP() << "under ThreadSanitizer";
  const JsonValue file =
      parse_json(read_text(TALLY_SOURCE_DIR "/tests/reference/autocast.json", 1 << 20), {}, "autocast.json");
  for (const std::string name : {"cope", "relative"}) {
    const double found = error_of(name, 1, testing::on_cuda_host), theirs = file.at("errors").at(name).real();
    EXPECT_LE(found, 2 * theirs) << name;
    EXPECT_GE(found, theirs / 20) << name;
  }
  EXPECT_LE(error_of("rope", 1, testing::on_cuda_host, 0, "head"), 3 * error_of("rope", 1));
}

// Operands and results in bf16, by all families of kernels and in the order of every kind of operands.
TEST_F(Bf16, EveryKernelOfCudaIsAsNearAsThatOfTheCpu) {
  if (testing::only_small_kernels(testing::on_cuda_host)) GTEST_SKIP() << "under ThreadSanitizer";
  struct Case {
    EncodingChoice choice;
    std::int64_t key_heads = 0;
  };
  std::vector<Case> cases;
  for (const char* const text : {"none", "xpos", "alibi[window=20,first=2]", "t5", "softpick", "bam", "relative+fox"}) {
    cases.push_back({EncodingChoice::parse(text)});
    cases.push_back({EncodingChoice::parse(text), 2});
  }
  cases.push_back({encoding("fox", {{"score-scale", "none"}})});
  for (const char* const text : {"stick-breaking", "sink"}) cases.push_back({encoding(text, {{"remainder", "value"}})});
  for (const Case& one : cases) {
    if (!is_asked(one.choice)) continue;
    const auto error_on = [&](Device device) {
      set_matmul_precision(MatmulPrecision::f32);
      const std::vector<double> exact = Model(one.choice, 1, DType::f64, {}, one.key_heads).gradients(1);
      set_matmul_precision(MatmulPrecision::bf16);
      return relative_error(Model(one.choice, 1, DType::f32, device, one.key_heads).gradients(1), exact);
    };
    EXPECT_LE(error_on(testing::on_cuda_host), 2 * error_on({})) << one.choice.text() << " " << one.key_heads;
  }
}

TEST_F(Bf16, SameBitsForAnyThreadCount) {
  set_matmul_precision(MatmulPrecision::bf16);
  for (const std::string encoding : {"none", "cope", "relative"}) {
    std::vector<double> first;
    for (const int threads : {1, 2, 3}) {
      set_thread_count(threads);
      const std::vector<double> found = Model(encoding, 1, DType::f32).gradients(1);
      if (threads == 1) first = found;
      EXPECT_EQ(found, first) << encoding << " by " << threads;
    }
  }
}

}  // namespace tally::testing::bf16_test

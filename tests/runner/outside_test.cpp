// Trained models recomputed without tally: tests/outside/check.py computes logits, loss, attention, gates, positions
// and every parameter's gradient from the formulas in NumPy. It compares them with `tally inspect --gradients`. Only
// combinations and cases with changed parameters name encodings; new ones are checked automatically.
#include <gtest/gtest.h>

#include "tests/nn/encoding_cases.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::outside_test {

#ifdef TALLY_PYTHON
constexpr const char* python = TALLY_PYTHON;
#else
constexpr const char* python = nullptr;
#endif

class Outside : public Program, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (python == nullptr) {
      GTEST_SKIP()
          << "no Python 3 with NumPy (python3-numpy) was found for this build: no model is checked from outside";
    }
  }

  // Trains a tiny model, perhaps changes its parameters, and dumps two sequences for check(). Returns false when tally
  // refused the options.
  bool dump(const std::string& encoding, const std::string& options = "",
            const std::function<void(NamedTensors&)>& change = nullptr) {
    const std::string run = formatted("run-{}", runs_++), file = run + "/dump.safetensors";
    // A large step, so that tables which start at zero have an effect.
    const std::string line =
        tiny(run, encoding, formatted("{} --optimiser.lr=0.02 --dtype={} --device={}", options, GetParam(), device_));
    const Finished trained = tally(line);
    refusal_ = trained.err;
    if (trained.code != 0) return false;
    const std::string checkpoint = run + "/checkpoints/step-00000004.safetensors";
    if (change) change_tensors(folder_ / checkpoint, change);
    done(formatted("inspect {} --split ood-dense --count 2 --gradients --out {} --device {}", run, file, device_));
    files_.insert(files_.end(), {checkpoint, run + "/config.json", file});
    lines_ += line + "\n";
    return true;
  }
  void expect_dumps(const std::vector<std::string>& encodings, const std::string& options = "") {
    for (const std::string& encoding : encodings) EXPECT_TRUE(dump(encoding, options)) << encoding << refusal_;
  }

  // Checks all dumps.
  void check() {
    std::vector<std::string> words{python, "-B", TALLY_SOURCE_DIR "/tests/outside/check.py"};
    words.insert(words.end(), files_.begin(), files_.end());
    const Finished checked = run_program(words, folder_);
    EXPECT_EQ(checked.code, 0) << checked.err << checked.out << lines_;
    EXPECT_NE(checked.out.find("all within tolerance"), std::string::npos);
  }

  static bool in_double() { return std::string_view(GetParam()) == "f64"; }

  std::vector<std::string> files_;  // three for each dump
  std::string lines_, device_ = "cpu", refusal_;
  int runs_ = 0;
};

std::string options_of(const EncodingChoice& choice) {
  std::string words;
  for (const auto& part : choice.parts) {
    for (const OptionInfo& option : list_options(*part.options)) {
      const std::string value = to_text(option.value);
      if (!value.empty()) words += formatted("--pe.{}.{}={} ", part.entry->name, option.name, value);
    }
  }
  return words;
}

// f64 checks the formulas. f32 only adds rounding, which a few cases cover.
TEST_P(Outside, EveryEncodingWithAllValuesOfItsOptions) {
  std::size_t n = 0;
  for (const EncodingCase& one : every(in_double() ? 4 : 12, all_cases())) {
    SCOPED_TRACE(one.label);
    // Every third case has a norm of queries and keys, alternating between both kinds.
    const std::string norm = ++n % 3 != 0 ? "" : n % 2 == 0 ? "--model.qk-norm=head" : "--model.qk-norm=full";
    // 16 tokens exceed a table of 2 rows. This is the only valid reason for an encoding to refuse.
    EXPECT_TRUE(dump(one.choice.text(), options_of(one.choice) + norm) || holds(refusal_, "16 tokens")) << refusal_;
  }
  for (const EncodingEntry* entry : encoding_registry()) {
    if (in_double()) expect_dumps({entry->name});
  }
  check();
}

// Combinations, in f64 only.
class OutsideTogether : public Outside {};

TEST_P(OutsideTogether, Sums) {
  expect_dumps({"cope+rope", "cope+relative", "alibi+cope", "cope+nexus", "absolute+alibi+rope", "absolute+hard",
                "hard+nexus+rope", "cope+transformer-xl+xpos", "fire+kerple+t5", "fox-pro+rope", "cope-mlp+fox+rope",
                "alibi+stick-breaking", "fox+rope", "cope+hard", "cope+fire", "alibi+fox", "kerple+rope", "cope+tra"});
  for (const std::string encoding : {"cope", "cope-alibi", "cope-mlp", "relative"}) {
    expect_dumps(
        {encoding + "+rope", encoding + "+nexus+rope"},
        "--pe." + encoding + ".rotated-query" + (encoding == "cope-alibi" ? " --pe.cope-alibi.gates=values" : ""));
  }
  check();
}

// A share of all combinations of two, in the same or in different layers and heads, with default and changed options.
TEST_P(OutsideTogether, AShareOfAllThatActTogether) {
  const std::vector<const char*> reasons{" each ", "16 tokens", "acts on the embeddings", "would act nowhere",
                                         "as wide as a head"};
  std::size_t count = 0, dumped = 0;
  for (const EncodingCase& one : every(20, together_cases())) {
    SCOPED_TRACE(one.label);
    ++count;
    if (dump(one.choice.text(), options_of(one.choice))) {
      ++dumped;
    } else {
      const bool told = std::any_of(reasons.begin(), reasons.end(), [&](const char* r) { return holds(refusal_, r); });
      EXPECT_TRUE(told) << refusal_;
    }
  }
  EXPECT_GE(dumped, count / 2);
  check();
}

// In texts longer than the threshold, the bias depends on the query too.
TEST_P(Outside, FireBeyondItsThreshold) {
  for (const char* encoding : {"fire", "cope+fire"}) {
    SCOPED_TRACE(encoding);
    int changed = 0;
    EXPECT_TRUE(dump(encoding, "", [&](NamedTensors& tensors) {
      for (auto& [name, tensor] : tensors) {
        if (!name.starts_with("model.") || !name.ends_with(".fire.m")) continue;
        tensor = Tensor::full(tensor.shape(), 0.01 * ++changed, tensor.dtype());  // of 5.12 and 10.24 tokens
      }
    })) << refusal_;
    EXPECT_EQ(changed, 2);
  }
  check();
}

TEST_P(Outside, LayersAndGroupsOfHeads) {
  if (!in_double()) GTEST_SKIP() << "checked in f64";
  expect_dumps({"0:none,1:cope", "0:absolute+cope+rope,1:cope@0,cope+relative@1"}, "--pe.cope.gates=sep-keys");
  expect_dumps({"cope@0,alibi@1"}, "--pe.cope.gates=sep-keys --pe.alibi.learned");
  check();
}

TEST_P(Outside, OtherModels) {
  if (!in_double()) GTEST_SKIP() << "checked in f64";
  for (const char* model :
       {"--model.norm-place=post --model.activation=relu --model.tied --model.final-norm=false --model.init=authors",
        "--model.norm=rms --model.activation=swiglu --model.hidden=12 --model.init=gpt2",
        "--model.residual=parallel --model.activation=gelu-tanh --model.norm-eps=0.01 --model.head-width=6",
        "--model.heads=4 --model.kv-heads=2", "--model.layers=1 --model.heads=1 --model.width=6",
        "--model.heads=3 --model.width=12 --task.loss=all --model.dropout=0.1",
        "--model.qk-norm=full --model.norm=rms --model.heads=4 --model.kv-heads=2"}) {
    expect_dumps({"cope", "alibi"}, model);
  }
  // Per-head parameters of keys.
  expect_dumps({"fox-pro", "nexus", "transformer-xl"}, "--model.heads=4 --model.kv-heads=2");
  expect_dumps({"cope", "cope-alibi", "cope-mlp"}, "--model.bias=false --pe.gates=sep-keys");
  expect_dumps({"nexus+rope", "fox-pro", "fire+transformer-xl"}, "--model.bias=false");
  check();
}

// A share of the encodings. The suite Devices compares every encoding's losses with the CPU's.
TEST_P(Outside, EncodingsOnCudaKernels) {
  if (in_double()) GTEST_SKIP() << "checked in f32, which GPUs train in";
  for (const Device device : kernel_devices()) {
    device_ = to_text(device);
    for (const EncodingCase& one : every(6, plain_cases())) expect_dumps({one.label});
    expect_dumps({"0:absolute+cope+rope,1:cope@0,cope+relative@1"}, "--pe.cope.gates=sep-keys");
  }
  check();
}

INSTANTIATE_TEST_SUITE_P(Single, Outside, ::testing::Values("f32"));
INSTANTIATE_TEST_SUITE_P(Double, Outside, ::testing::Values("f64"));
INSTANTIATE_TEST_SUITE_P(Double, OutsideTogether, ::testing::Values("f64"));

}  // namespace tally::testing::outside_test

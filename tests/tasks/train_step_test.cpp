// A training step that is captured once and replayed equals one that runs kernel by kernel.
#include "tasks/training/train_step.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "autograd/node.hpp"
#include "core/cpu/floating_mode.hpp"
#include "nn/encoding/choice.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/share.hpp"
#include "tests/tasks/configured.hpp"

namespace tally::train_step_test {

using Numbers = std::vector<std::vector<float>>;

// The elements of parameters and of an optimiser's state.
Numbers values_of(const std::vector<NamedTensors>& groups) {
  Numbers all;
  for (const NamedTensors& tensors : groups) {
    for (const auto& [name, tensor] : tensors) all.push_back(tensor.to(Device{}).to(DType::f32).to_vector<float>());
  }
  return all;
}

// A tiny model with dropout and clipping, and the step that trains it.
class Training {
 public:
  // "cope", or "lstm".
  explicit Training(const std::string& of, std::int64_t micro_batch = 0, const std::string& more = "")
      : config_(testing::configured("flip-flop", of == "lstm" ? "none" : of,
                                    (of == "lstm" ? "model.kind=lstm " : "") +
                                        ("task.length=16 model.width=8 model.heads=2 model.layers=2 model.dropout=0.1 "
                                         "optimiser.clip=0.5 " +
                                         more))) {
    task_ = config_.make_task();
    model_ = config_.make_model(*task_);
    optimizer_ = Optimizer::make(config_.optimiser, model_->parameters());
    step_.emplace(*model_, *optimizer_, 1, micro_batch);
  }

  StepReport step(std::int64_t n, std::int64_t sequences = 4) { return (*step_)(batch(n, sequences), n, 10); }
  Batch batch(std::int64_t n, std::int64_t sequences) const {
    return collate(examples_of(*task_, "train", 8 * n, 8 * n + sequences));
  }

  Numbers state() const { return values_of({model_->parameters(), optimizer_->state()}); }

  SequenceModel& model() { return *model_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const OptimizerOptions& options() const { return config_.optimiser; }

 private:
  RunConfig config_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<SequenceModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<TrainStep> step_;
};

class Steps : public testing::OnDevice {
 protected:
  void TearDown() override {
    set_finite_checks(false);
    OnDevice::TearDown();
  }
};

void expect_same(const StepReport& a, const StepReport& b) {
  EXPECT_EQ(a.loss, b.loss) << a.step;
  EXPECT_EQ(a.grad_norm, b.grad_norm) << a.step;
  EXPECT_EQ(a.token_error, b.token_error) << a.step;
}

TEST_P(Steps, ReplayedAreTheSameBits) {
  std::vector<std::string> names{"lstm"};
  for (const EncodingEntry* entry : encoding_registry()) names.push_back(entry->name);
  for (const std::string& name : testing::every(testing::takes_a_share() ? 3 : 1, names)) {
    SCOPED_TRACE(name);
    // The search for the first non-finite number inspects every operation, so nothing is captured. It finds none.
    Training replayed(name), called(name);
    for (std::int64_t n = 1; n <= 5; ++n) {
      const std::int64_t sequences = n == 4 ? 3 : 4;  // the last batch of an epoch can be smaller
      set_finite_checks(false);
      const StepReport a = replayed.step(n, sequences);
      set_finite_checks(true);
      const StepReport b = called.step(n, sequences);
      expect_same(a, b);
    }
    EXPECT_TRUE(replayed.state() == called.state());
  }
}

TEST_P(Steps, OfMicroBatchesReplayedAreTheSameBits) {
  for (const std::string name : {"lstm", "cope"}) {
    SCOPED_TRACE(name);
    Training replayed(name, 3), called(name, 3), whole(name, 4), as_ever(name);
    for (std::int64_t n = 1; n <= 5; ++n) {
      const std::int64_t sequences = n == 4 ? 3 : 4;
      set_finite_checks(false);
      const StepReport a = replayed.step(n, sequences);
      EXPECT_EQ(whole.step(n, sequences).loss, as_ever.step(n, sequences).loss);
      set_finite_checks(true);
      const StepReport b = called.step(n, sequences);
      expect_same(a, b);
    }
    EXPECT_TRUE(replayed.state() == called.state());
    EXPECT_TRUE(whole.state() == as_ever.state());
    EXPECT_FALSE(replayed.state() == whole.state());  // sums in another order
  }
}

// Apart from rounding, nothing depends on the size of micro-batches. The loss does not, although the number of counted
// symbols differs between sequences, and neither does dropout.
TEST_P(Steps, OfMicroBatchesDoWhatThoseOfTheWholeBatchDo) {
  for (const auto& [name, setting] : {std::pair{"lstm", ""},
                                      {"cope", ""},
                                      {"alibi@0,fox@1", "model.tied=true"},
                                      {"stick-breaking", "task.length=14"},
                                      {"cope", "model.attention=composed task.length=14"}}) {
    SCOPED_TRACE(name);
    const std::string settings = formatted("dtype=f64 optimiser.name=sgd optimiser.lr=0.5 {}", setting);
    Training whole(name, 0, settings);
    const Numbers start = whole.state();
    std::vector<StepReport> expected;
    for (std::int64_t n = 1; n <= 3; ++n) expected.push_back(whole.step(n, 5));
    const Numbers end = whole.state();
    EXPECT_FALSE(start == end);
    for (const std::int64_t micro_batch : {1, 3}) {
      Training parts(name, micro_batch, settings);
      for (std::int64_t n = 1; n <= 3; ++n) {
        const StepReport& report = expected[static_cast<std::size_t>(n - 1)];
        const StepReport found = parts.step(n, 5);
        EXPECT_NEAR(found.loss, report.loss, 1e-12) << micro_batch;
        EXPECT_NEAR(found.grad_norm, report.grad_norm, 1e-12) << micro_batch;
        EXPECT_EQ(found.token_error, report.token_error) << micro_batch;
        EXPECT_EQ(found.sequence_error, report.sequence_error) << micro_batch;
      }
      const Numbers state = parts.state();
      for (std::size_t i = 0; i < end.size(); ++i) {
        for (std::size_t j = 0; j < end[i].size(); ++j) ASSERT_NEAR(state[i][j], end[i][j], 3e-7) << i << " " << j;
      }
    }
  }
}

// FIRE reads a computed number back, which a captured step cannot do. From there on the step runs kernel by kernel, and
// prints one note.
TEST_P(Steps, SayOnceWhyTheyAreNotReplayed) {
  for (const std::string encoding : {"fire", "alibi"}) {
    Training training(encoding);
    for (std::int64_t n = 1; n <= 4; ++n) {
      const std::string note = training.step(n).note;
      const bool told = n == 2 && encoding == "fire" && DeviceGraph::available(GetParam());
      EXPECT_EQ(note,
                told ? "steps are computed call by call, and not replayed: in blocks.0.attention: [graph] numbers were "
                       "read back from the device in work that is being captured"
                     : "")
          << encoding << " " << n;
    }
  }
}

TEST_P(Steps, LeaveEverythingAsItWasWhereALossIsNotFinite) {
  Training training("alibi");
  for (std::int64_t n = 1; n <= 3; ++n) training.step(n);
  Tensor weight = training.model().parameters().front().second;
  const Tensor good = weight.clone();
  Tensor bad = good.to(Device{}).clone();
  for (std::int64_t row = 0; row < bad.size(0); ++row) {
    bad.span<float>()[static_cast<std::size_t>(row * bad.size(1))] = std::numeric_limits<float>::quiet_NaN();
  }
  weight.copy_from(bad);
  Numbers before = training.state();
  const std::string error = testing::error_of([&] { training.step(4); });
  EXPECT_NE(error.find("step 4: the loss is not finite"), std::string::npos) << error;
  weight.copy_from(good);
  Numbers after = training.state();
  before.front() = after.front();  // NaN is not equal to itself
  EXPECT_TRUE(before == after);
  EXPECT_TRUE(std::isfinite(training.step(4).loss));
}

// A loop of a program that uses the library computes the bits of the step: schedule, clipping, dropout, projection.
TEST_P(Steps, AreThoseOfTheOptimiserItself) {
  for (const std::string name : {"cope", "fire"}) {
    const std::string settings = "optimiser.schedule=cosine optimiser.warmup=2";
    Training training(name, 0, settings), loop(name, 0, settings);
    const auto optimizer = Optimizer::make(loop.options(), loop.model(), 10);
    for (std::int64_t n = 1; n <= 4; ++n) {
      const StepReport report = training.step(n);
      const Batch batch = loop.batch(n, 4).to(GetParam());
      const ForwardContext pass{.training = true, .step = {.seed = 1, .number = static_cast<std::uint32_t>(n)}};
      const Tensor loss = cross_entropy(loop.model().forward(batch.tokens, pass), batch.targets, batch.loss_mask);
      loss.backward();
      EXPECT_EQ(optimizer->step(), report.grad_norm);
      EXPECT_EQ(loss.item(), report.loss);
    }
    EXPECT_TRUE(values_of({training.model().parameters(), training.optimizer().state()}) ==
                values_of({loop.model().parameters(), optimizer->state()}));
  }
}

// When gradients are clipped to almost nothing, their squares are subnormal.
TEST_P(Steps, DoNotDependOnTheFloatingPointModeOfTheCaller) {
  const std::uint64_t mode = cpu::floating_mode();
  Training as_ever("cope", 0, "optimiser.clip=1e-20"), flushed("cope", 0, "optimiser.clip=1e-20");
  for (std::int64_t n = 1; n <= 3; ++n) {
    as_ever.step(n);
    cpu::set_floating_mode(cpu::kernel_mode);
    flushed.step(n);
    cpu::set_floating_mode(mode);
  }
  EXPECT_TRUE(as_ever.state() == flushed.state());
  for (const std::vector<float>& numbers : as_ever.state()) {
    for (const float number : numbers) ASSERT_TRUE(number == 0 || std::isnormal(number)) << number;
  }
}

TALLY_ON_EVERY_DEVICE(Steps);

}  // namespace tally::train_step_test

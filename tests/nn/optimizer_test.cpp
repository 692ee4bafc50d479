// Update rules, schedules and clipping against values made in another language
// (tests/reference/README.md, plain operations), and cases that those do not cover.
#include "nn/optimizer.hpp"

#include <gtest/gtest.h>

#include "core/io/safetensors.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/encoding_cases.hpp"

namespace tally::optimizer_test {

const SafetensorsFile& reference() {
  static const SafetensorsFile file = SafetensorsFile::open(TALLY_SOURCE_DIR "/tests/reference/ops.safetensors");
  return file;
}

// "adam.basic" and similar names for each of the named operations.
std::vector<std::string> reference_cases(const std::set<std::string>& operations) {
  std::set<std::string> cases;
  for (const SafetensorsEntry& entry : reference().entries()) {
    const std::string name = entry.name.substr(0, entry.name.rfind('.'));
    if (operations.contains(name.substr(0, name.find('.')))) cases.insert(name);
  }
  return {cases.begin(), cases.end()};
}

// The defaults of a rule; for unknown words the defaults of adamw.
OptimizerOptions rule(const std::string& name) {
  OptimizerOptions options;
  if (std::ranges::any_of(optimizer_registry(), [&](const auto* entry) { return entry->name == name; })) {
    options.name = name;
  }
  return options;
}

// With momentum, where the rule has it.
OptimizerOptions with_momentum(const std::string& name) {
  OptimizerOptions options = rule(name);
  if (name == "sgd") options.set("momentum", "0.9");
  return options;
}

// Options of a case from the metadata, where names have underscores.
OptimizerOptions options_of(const std::string& name) {
  OptimizerOptions options = rule(name.substr(0, name.find('.')));
  for (const auto& [key, value] : reference().metadata()) {
    if (!key.starts_with(name + ".")) continue;
    std::string option = key.substr(name.size() + 1);
    std::replace(option.begin(), option.end(), '_', '-');
    if (option != "steps") set_option(options, "optimiser", option, value);
  }
  return options;
}

Tensor leaf(const Tensor& value) {
  Tensor own = value.clone();
  set_requires_grad(own);
  return own;
}

TEST(Optimizer, UpdatesAsTheReferenceDoes) {
  const std::vector<std::string> cases = reference_cases({"sgd", "adam", "adamw"});
  ASSERT_GE(cases.size(), 8u);
  for (const std::string& name : cases) {
    SCOPED_TRACE(name);
    const OptimizerOptions options = options_of(name);
    const Tensor gradients = reference().read(name + ".in1"), expected = reference().read(name + ".out");
    const Tensor parameter = leaf(reference().read(name + ".in0"));
    const auto optimizer = Optimizer::make(options, {{"p", parameter}});
    for (std::int64_t n = 1; n <= 3; ++n) {
      set_gradient(parameter, gradients.detached_select(0, n - 1).clone());
      optimizer->step();
      const std::vector<double> found = parameter.to_vector<double>();
      const std::vector<double> row = expected.detached_select(0, n - 1).to_vector<double>();
      for (std::size_t e = 0; e < row.size(); ++e) EXPECT_NEAR(found[e], row[e], 1e-14) << n;
    }
  }
}

TEST(Optimizer, SchedulesAsTheReferenceDoes) {
  const std::vector<std::string> cases = reference_cases({"schedule"});
  ASSERT_GE(cases.size(), 19u);
  for (const std::string& name : cases) {
    SCOPED_TRACE(name);
    const OptimizerOptions options = options_of(name);
    const std::int64_t steps = std::stoll(reference().metadata().at(name + ".steps"));
    const std::vector<double> expected = reference().read(name + ".out").to_vector<double>();
    for (std::int64_t n = 1; n <= steps; ++n) {
      EXPECT_NEAR(learning_rate(options, n, steps), expected[static_cast<std::size_t>(n - 1)], 1e-18) << n;
    }
  }
}

// A run that is continued for more steps keeps the past of these; of the others it has another one.
TEST(Schedule, ConstantInverseRootAndStableStepsDoNotSeeTheEnd) {
  OptimizerOptions options;
  options.warmup = 3;
  options.lr_floor = 0.1;
  const auto same_until = [&](const std::string& schedule) {
    options.schedule = schedule;
    std::int64_t n = 1;
    while (n <= 20 && learning_rate(options, n, 20) == learning_rate(options, n, 40)) ++n;
    return n - 1;
  };
  EXPECT_EQ(same_until("constant"), 20);
  EXPECT_EQ(same_until("inverse-root"), 20);
  EXPECT_EQ(same_until("wsd"), 18);  // a tenth is for the cooldown
  EXPECT_EQ(same_until("linear"), 3);
  EXPECT_EQ(same_until("cosine"), 3);
  options.cooldown = 0.25;
  EXPECT_EQ(same_until("wsd"), 15);
  EXPECT_EQ(same_until("inverse-root"), 15);
  options.schedule = "wsd";
  for (std::int64_t n = 3; n <= 15; ++n) EXPECT_EQ(learning_rate(options, n, 20), options.lr);
}

TEST(Optimizer, ClipsAsTheReferenceDoes) {
  const std::vector<std::string> cases = reference_cases({"clip"});
  ASSERT_GE(cases.size(), 2u);
  for (const std::string& name : cases) {
    SCOPED_TRACE(name);
    NamedTensors parameters;
    for (const std::string in : {"in0", "in1"}) {
      const Tensor d_parameter = reference().read(formatted("{}.{}", name, in));
      parameters.emplace_back(in, leaf(Tensor::zeros(d_parameter.shape(), DType::f64)));
      set_gradient(parameters.back().second, d_parameter);
    }
    const Tensor squares = Tensor::empty({2}, DType::f64);
    squared_gradients(squares, parameters);
    EXPECT_NEAR(gradient_norm(squares.to_vector<double>()), reference().read(name + ".norm").item(), 1e-13);
    OptimizerOptions options = options_of(name);
    options.name = "sgd";
    // From zeros with rate 1, plain descent leaves minus the clipped gradient.
    options.lr = 1;
    EXPECT_EQ(Optimizer::make(options, parameters)->step(), gradient_norm(squares.to_vector<double>()));
    for (std::size_t n = 0; n < 2; ++n) {
      const std::vector<double> expected = reference().read(formatted("{}.out{}", name, n)).to_vector<double>();
      const std::vector<double> found = parameters[n].second.to_vector<double>();
      for (std::size_t e = 0; e < expected.size(); ++e) EXPECT_NEAR(-found[e], expected[e], 1e-14);
    }
  }
}

TEST(Optimizer, CountsFollowsTheScheduleAndClips) {
  OptimizerOptions options = rule("sgd");
  options.lr = 1, options.schedule = "linear", options.warmup = 2, options.clip = 3;
  constexpr std::int64_t steps = 6;
  const Tensor p = leaf(Tensor::zeros({2}, DType::f64));
  const auto optimizer = Optimizer::make(options, {{"p", p}}, steps);
  double expected = 0;
  for (std::int64_t n = 1; n <= steps; ++n) {
    EXPECT_EQ(optimizer->count(), n - 1);
    set_gradient(p, Tensor::from({3, 4}, DType::f64));
    EXPECT_EQ(optimizer->step(), 5);
    EXPECT_FALSE(p.grad().defined());
    expected -= learning_rate(options, n, steps) * 3 * (3 / (5 + 1e-6));
    EXPECT_NEAR(p.to_vector<double>()[0], expected, 1e-15);
  }
  EXPECT_EQ(testing::error_of([&] { optimizer->step(); }), "[schedule] step 7 is not one of 1 to 6");
  const auto endless = Optimizer::make(options, {{"p", p}});
  EXPECT_EQ(testing::error_of([&] { endless->step(); }),
            "[optimiser] schedule = linear depends on the number of steps; pass it to Optimizer::make(options, model, "
            "steps)");
}

TEST(Optimizer, ChangesNothingIfAGradientIsNotFinite) {
  const Tensor p = leaf(Tensor::ones({2}));
  set_gradient(p, Tensor::full({2}, std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(std::isinf(Optimizer::make({}, {{"p", p}})->step()));
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{1, 1}));
}

// More parameters than a kernel takes in one launch, of none to many blocks' elements, one in five without a gradient.
class ManyParameters : public testing::OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "thousands of launches: too many for ThreadSanitizer";
  }
  static NamedTensors make() {
    constexpr std::int64_t sizes[]{1, 0, 1023, 1024, 1025, 4096, 9001};
    NamedTensors parameters;
    for (std::int64_t n = 0; n < 120; ++n) {
      const std::string name = formatted("p{}", n);
      const Shape shape{sizes[n % std::ssize(sizes)]};
      parameters.emplace_back(name, leaf(testing::normal_tensor(name, shape).to(DType::f32)));
      if (n % 5 != 0) {
        set_gradient(parameters.back().second, testing::normal_tensor(name + " gradient", shape).to(DType::f32));
      }
    }
    return parameters;
  }
};

TEST_P(ManyParameters, AreUpdatedAsEachAlone) {
  for (const std::string name : {"sgd", "adam", "adamw"}) {
    SCOPED_TRACE(name);
    const OptimizerOptions options = with_momentum(name);
    const NamedTensors together = make(), alone = make(), untouched = make();
    Optimizer::make(options, together)->step();
    for (std::size_t n = 0; n < alone.size(); ++n) {
      Optimizer::make(options, {alone[n]})->step();
      const std::vector<float> found = together[n].second.to_vector<float>();
      EXPECT_EQ(found, alone[n].second.to_vector<float>()) << n;
      const bool changed = found != untouched[n].second.to_vector<float>();
      EXPECT_EQ(changed, n % 5 != 0 && !found.empty()) << n;
    }
  }
}

TEST_P(ManyParameters, HaveTheNormsOfEachAlone) {
  const NamedTensors parameters = make();
  const Tensor squares = Tensor::empty({std::ssize(parameters)}, DType::f64, GetParam());
  squared_gradients(squares, parameters);
  const std::vector<double> found = squares.to_vector<double>();
  for (std::size_t n = 0; n < parameters.size(); ++n) {
    const Tensor own = Tensor::full({1}, -1, DType::f64, GetParam());
    squared_gradients(own, {parameters[n]});
    EXPECT_EQ(found[n], own.item()) << n;
    double sum = 0;
    const Tensor d_parameter = gradient(parameters[n].second);
    if (d_parameter.defined()) {
      for (const double x : d_parameter.to_vector<float>()) sum += x * x;
    }
    EXPECT_NEAR(found[n], sum, 1e-13 * sum) << n;
  }
}
TALLY_ON_EVERY_DEVICE(ManyParameters);

// Adds decay p to the gradient, while AdamW shrinks p directly.
TEST(Optimizer, AdamAddsDecayToTheGradient) {
  OptimizerOptions options;
  options.name = "adam";
  options.weight_decay = 0.1, options.lr = 0.01;
  const Tensor with = leaf(Tensor::from(std::vector<double>{0.5, -2.0}, {2}));
  const Tensor by_hand = leaf(with);
  const auto optimizer = Optimizer::make(options, {{"p", with}});
  options.weight_decay = 0;
  const auto plain = Optimizer::make(options, {{"p", by_hand}});
  for (std::int64_t n = 1; n <= 3; ++n) {
    const Tensor d_loss = Tensor::from(std::vector<double>{0.3, 0.1}, {2});
    set_gradient(with, d_loss);
    set_gradient(by_hand, d_loss + by_hand.detach() * 0.1);
    optimizer->step();
    plain->step();
    const std::vector<double> a = with.to_vector<double>(), b = by_hand.to_vector<double>();
    for (std::size_t e = 0; e < 2; ++e) EXPECT_NEAR(a[e], b[e], 1e-15);
  }
}

// A second optimiser that takes over the state continues with the same bits.
TEST(Optimizer, GoesOnFromItsState) {
  for (const std::string name : {"adamw", "sgd"}) {
    const OptimizerOptions options = with_momentum(name);
    const Tensor whole = leaf(Tensor::full({3}, 1)), first = leaf(Tensor::full({3}, 1));
    const auto uninterrupted = Optimizer::make(options, {{"p", whole}});
    const auto before = Optimizer::make(options, {{"p", first}});
    const auto after = Optimizer::make(options, {{"p", first}});
    const auto d_loss = [](std::int64_t n) {
      return Tensor::from(std::vector<float>{1, 2, static_cast<float>(n)}, {3});
    };
    for (std::int64_t n = 1; n <= 4; ++n) {
      set_gradient(whole, d_loss(n));
      uninterrupted->step();
      set_gradient(first, d_loss(n));
      (n <= 2 ? before : after)->step();
      if (n != 2) continue;
      after->set_count(before->count());
      NamedTensors kept = before->state(), into = after->state();
      ASSERT_EQ(kept.size(), name == "sgd" ? 1u : 2u);
      EXPECT_EQ(kept[0].first, "p.m");
      for (std::size_t s = 0; s < kept.size(); ++s) into[s].second.copy_from(kept[s].second);
    }
    EXPECT_EQ(whole.to_vector<float>(), first.to_vector<float>()) << name;
  }
  EXPECT_TRUE(Optimizer::make(rule("sgd"), {{"p", leaf(Tensor::zeros({1}))}})->state().empty());
}

TEST(Optimizer, RefusesWhatItCannotUpdate) {
  OptimizerOptions options;
  EXPECT_THROW(Optimizer::make(options, {{"p", Tensor::zeros({2})}}), Error);
  options.name = "no-such-rule";
  EXPECT_THROW(Optimizer::make(options, {{"p", leaf(Tensor::zeros({2}))}}), Error);
}

// Another rule's options are known, and accepted where they change nothing.
TEST(Optimizer, RefusesOptionsOfAnotherRule) {
  const auto refusal = [](const std::string& name, const std::string& option, const std::string& text) {
    OptimizerOptions options = rule(name);
    return testing::error_of([&] { options.set(option, text); });
  };
  // Rules of one's own may have options of these names as well, and are named then.
  const auto named = [](const std::string& refused, const std::string& rule) {
    return (refused + " ").find(" " + rule + " ") != std::string::npos;
  };
  const std::string of_momentum = refusal("adamw", "momentum", "0.9"), of_beta = refusal("sgd", "beta1", "0.5");
  EXPECT_TRUE(of_momentum.starts_with("[optimiser] momentum = 0.9 has no effect with adamw; it is for "))
      << of_momentum;
  EXPECT_TRUE(named(of_momentum, "sgd")) << of_momentum;
  EXPECT_TRUE(of_beta.starts_with("[optimiser] beta1 = 0.5 has no effect with sgd; it is for ")) << of_beta;
  EXPECT_TRUE(named(of_beta, "adam") && named(of_beta, "adamw")) << of_beta;
  EXPECT_EQ(refusal("adamw", "momentum", "2"), "[optimiser] momentum must be in [0, 1), got '2'");
  EXPECT_EQ(refusal("adamw", "momentum", "0"), "");
  EXPECT_EQ(refusal("sgd", "beta1", "0.90"), "");
  EXPECT_NE(refusal("sgd", "momentun", "0.9").find("did you mean 'momentum'?"), std::string::npos);
  EXPECT_NE(refusal("adamw", "beta", "0.9").find("did you mean 'beta1'?"), std::string::npos);
}

// Options with the same name in two rules are carried over; a copy is independent.
TEST(Optimizer, KeepsOptionsThatTheNextRuleHasToo) {
  OptimizerOptions options;
  options.set("beta2", "0.5");
  const OptimizerOptions copy = options;
  options.set("name", "adam");
  options.set("beta1", "0.25");
  const auto value_of = [](OptimizerOptions of, const std::string& name) {
    for (const OptionInfo& option : list_options(of)) {
      if (option.name == name) return to_text(option.value);
    }
    return std::string("none");
  };
  EXPECT_EQ(value_of(options, "beta2"), "0.5");
  EXPECT_EQ(value_of(options, "beta1"), "0.25");
  EXPECT_EQ(value_of(copy, "beta1"), "0.9");
  EXPECT_EQ(value_of(copy, "name"), "adamw");
  options.set("name", "sgd");
  EXPECT_EQ(value_of(options, "beta2"), "none");
  EXPECT_EQ(value_of(options, "momentum"), "0");
}

// Momentum made only of operations, as an update rule without a kernel is written.
class Composed final : public Optimizer {
 public:
  Composed(const OptimizerOptions& options, NamedTensors parameters)
      : Optimizer(options, std::move(parameters), {"m"}) {}

 private:
  std::vector<double> row(const Numbers& numbers) const override {
    return {numbers.gradient_scale, numbers.weight_decay, numbers.lr};
  }
  void apply(const std::vector<Update>& updates) const override {
    for (const Update& u : updates) {
      const Tensor g = u.gradient * u.number(0) + u.number(1) * u.parameter;
      u.assign(u.state[0], 0.9 * u.state[0] + g);
      u.assign(u.parameter, u.parameter - u.number(2) * u.state[0]);
    }
  }
};

TEST(Optimizer, MayBeComposedOfOperations) {
  OptimizerOptions options = with_momentum("sgd");
  options.weight_decay = 0.1;
  const Tensor a = leaf(Tensor::from(std::vector<double>{0.5, -2.0}, {2})), b = leaf(a);
  const auto kernel = Optimizer::make(options, {{"p", a}});
  Composed composed(options, {{"p", b}});
  for (std::int64_t n = 1; n <= 4; ++n) {
    for (const Tensor& p : {a, b}) set_gradient(p, Tensor::from(std::vector<double>{0.3, 0.1}, {2}));
    // At the third, clipping found a gradient that is not finite.
    const double scale = n == 3 ? std::numeric_limits<double>::quiet_NaN() : 0.5;
    kernel->update(kernel->hyperparameters(n, 0.01, scale));
    composed.update(composed.hyperparameters(n, 0.01, scale));
    const std::vector<double> found = b.to_vector<double>(), expected = a.to_vector<double>();
    for (std::size_t e = 0; e < 2; ++e) EXPECT_NEAR(found[e], expected[e], 1e-15) << n;
  }
  EXPECT_EQ(composed.state().front().first, "p.m");
}

// A value kept for backward is changed by the step: a second backward would be wrong, so it is refused.
TEST(Optimizer, RaisesTheVersionOfWhatItChanges) {
  const Tensor p = leaf(Tensor::full({2}, 3));
  const Tensor loss = sum(square(p));
  set_gradient(p, Tensor::full({2}, 1));
  Optimizer::make({}, {{"p", p}})->step();
  EXPECT_THROW(backward(loss), Error);
}

}  // namespace tally::optimizer_test

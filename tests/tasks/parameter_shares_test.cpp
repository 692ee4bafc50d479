// An optimiser whose state is split over ranks equals an unsplit one, bit for bit.
#include "tasks/training/parameter_shares.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "autograd/node.hpp"
#include "nn/optimizer.hpp"
#include "tests/thread_ranks.hpp"

namespace tally::parameter_shares_test {

using testing::on_ranks;

Tensor numbers(unsigned seed, const Shape& shape) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = std::normal_distribution<float>()(random);
  return Tensor::from(values, shape);
}

// Odd sizes, a scalar, and one parameter that is larger than all others.
NamedTensors parameters() {
  NamedTensors all;
  for (const Shape& shape : {Shape{37, 13}, Shape{5}, Shape{}, Shape{1, 9}, Shape{3, 2, 4}}) {
    all.emplace_back("p" + std::to_string(all.size()), numbers(static_cast<unsigned>(all.size()), shape));
    set_requires_grad(all.back().second);
  }
  return all;
}

// The second parameter has no gradient in step 2.
void set_gradients(const NamedTensors& of, std::int64_t n) {
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (i == 1 && n == 2) continue;
    set_gradient(of[i].second,
                 numbers(static_cast<unsigned>(100 * n + static_cast<std::int64_t>(i)), of[i].second.shape()));
  }
}

OptimizerOptions options_of(const std::string& rule) {
  OptimizerOptions options;
  options.name = rule;
  options.weight_decay = 0.1;
  options.decay = "matrices";
  options.lr_scale = "p1=10";
  if (rule == "sgd") options.set("momentum", "0.9");
  return options;
}

using Values = std::vector<std::vector<float>>;

Values values_of(const NamedTensors& tensors) {
  Values all;
  for (const auto& [name, tensor] : tensors) all.push_back(tensor.to_vector<float>());
  return all;
}

class Rules : public ::testing::TestWithParam<std::string> {};

TEST_P(Rules, OfSharesAreThoseOfTheWhole) {
  constexpr std::int64_t steps = 4, stored_after = 2;
  const OptimizerOptions options = options_of(GetParam());
  const NamedTensors whole = parameters();
  const std::unique_ptr<Optimizer> of_whole = Optimizer::make(options, whole);
  Values state_then;
  for (std::int64_t n = 1; n <= steps; ++n) {
    for (const auto& [name, parameter] : whole) clear_gradient(parameter);
    set_gradients(whole, n);
    of_whole->update(of_whole->hyperparameters(n, 0.01, 0.7).to(DType::f32));
    if (n == stored_after) state_then = values_of(of_whole->state());
  }
  const Values expected = values_of(whole), expected_state = values_of(of_whole->state());
  for (const std::int64_t size : {1, 2, 3, 4, 7}) {
    on_ranks(size, [&](const ProcessGroup& ranks) {
      const std::unique_ptr<GradientReducer> exchange = make_gradient_reducer(ranks, Device{});
      const NamedTensors mine = parameters();
      const ParameterShares shares(mine, ranks);
      std::unique_ptr<Optimizer> optimizer = Optimizer::make(options, shares.own());
      EXPECT_TRUE(optimizer->elementwise());
      for (std::int64_t n = 1; n <= steps; ++n) {
        set_gradients(mine, n);
        shares.take_gradients();
        optimizer->update(optimizer->hyperparameters(n, 0.01, 0.7).to(DType::f32));
        shares.share_parameters(exchange.get());
        if (n != stored_after) continue;
        // Like a checkpoint, and an optimiser that resumes from it.
        const NamedTensors stored = shares.whole(optimizer->state());
        EXPECT_EQ(values_of(stored), ranks.first() ? state_then : Values());
        std::vector<StoredTensor> on_disk;
        const NamedTensors whole_state = of_whole->state();
        for (std::size_t i = 0; i < whole_state.size(); ++i) {
          const auto& [name, like] = whole_state[i];
          on_disk.push_back({name, like.dtype(), like.shape(),
                             [&state_then, i, shape = like.shape()] { return Tensor::from(state_then[i], shape); }});
        }
        optimizer = Optimizer::make(options, shares.own());
        load_tensors(optimizer->state(), shares.own_rows(std::move(on_disk)));
      }
      EXPECT_EQ(values_of(mine), expected) << size;
      EXPECT_EQ(values_of(shares.whole(optimizer->state())), ranks.first() ? expected_state : Values()) << size;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(ParameterShares, Rules, ::testing::Values("adamw", "adam", "sgd"));

TEST(ParameterShares, AreOfAboutOneSize) {
  const NamedTensors all = parameters();
  std::int64_t elements = 0;
  for (const auto& [name, parameter] : all) elements += parameter.numel();
  for (const std::int64_t size : {2, 3, 5}) {
    on_ranks(size, [&](const ProcessGroup& ranks) {
      std::int64_t own = 0;
      const NamedTensors mine = parameters();
      const ParameterShares shares(mine, ranks);
      for (const auto& [name, rows] : shares.own()) own += rows.numel();
      EXPECT_NEAR(static_cast<double>(own), static_cast<double>(elements) / static_cast<double>(size), 13) << size;
    });
  }
}

}  // namespace tally::parameter_shares_test

// The loss of a model whose logits are never in memory as a whole, compared with the loss of its logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/allocator.hpp"
#include "core/device/graph.hpp"
#include "core/device/kernels.hpp"
#include "nn/model.hpp"
#include "tests/devices.hpp"

namespace tally::loss_test {

std::unique_ptr<SequenceModel> make(const std::string& kind, bool tied, std::int64_t vocabulary) {
  ModelOptions options;
  options.kind = kind;
  options.layers = 1;
  options.width = 8;
  options.heads = 2;
  options.tied = tied;
  options.init = "fan-in";
  return make_model(options, EncodingChoice::parse("none"), vocabulary, 512, 1);
}

Tensor some_ids(const Shape& shape, std::int64_t vocabulary, const char* name) {
  Rng rng({3, stream_of(name), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < shape.numel(); ++n) {
    ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(vocabulary))));
  }
  return Tensor::from(ids, shape);
}

Tensor normal(const Shape& shape, const char* name, DType dtype) {
  Tensor x = Tensor::empty(shape, DType::f32);
  kernels(Device{}).random_normal(x.view(), {2, stream_of(name), 0}, 0, 1);
  return x.to(dtype).clone();
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to(DType::f64).to_vector<double>(), y = b.to(DType::f64).to_vector<double>();
  double largest = 0;
  for (std::size_t n = 0; n < x.size(); ++n) largest = std::max(largest, std::abs(x[n] - y[n]));
  return largest;
}

std::vector<Tensor> gradients_of(const SequenceModel& model) {
  std::vector<Tensor> gradients;
  for (const auto& [name, parameter] : model.parameters()) gradients.push_back(gradient(parameter));
  return gradients;
}

// With so large a vocabulary and text that the logits take more than 64 MiB.
TEST(LossInPieces, IsThatOfTheLogitsInLessMemory) {
  constexpr std::int64_t vocabulary = 1 << 15, logits_bytes = 2 * 260 * vocabulary * 4;
  const Tensor tokens = some_ids({2, 260}, vocabulary, "tokens"), targets = some_ids({2, 260}, vocabulary, "targets");
  Tensor mask = Tensor::full({2, 260}, 1, DType::boolean);
  mask.detached_slice(1, 0, 100).fill(0);
  const Tensor weight = Tensor::scalar(1.0 / 320);
  for (const auto& [kind, tied] : {std::pair{"transformer", false}, {"transformer", true}, {"lstm", false}}) {
    SCOPED_TRACE(kind);
    const auto model = make(kind, tied, vocabulary);
    const auto run = [&](bool whole) {
      model->clear_gradients();
      reset_peak_memory();
      const std::size_t before = memory_counters().live_bytes;
      TokenLoss found;
      if (whole) {
        const Tensor logits = model->forward(tokens);
        found = token_cross_entropy(logits, targets, mask, weight);
      } else {
        found = model->loss(tokens, targets, mask, weight);
      }
      backward(found.loss);
      const auto taken = static_cast<std::int64_t>(memory_counters().peak_bytes - before);
      EXPECT_EQ(taken > logits_bytes, whole) << taken;
      return found;
    };
    const TokenLoss expected = run(true);
    const std::vector<Tensor> gradients = gradients_of(*model);
    const TokenLoss found = run(false);
    EXPECT_NEAR(found.loss.item(), expected.loss.item(), 1e-5);
    EXPECT_EQ(found.best.to_vector<std::int64_t>(), expected.best.to_vector<std::int64_t>());
    EXPECT_LT(largest_difference(found.rows, expected.rows), 1e-5);
    EXPECT_EQ(found.rows.detached_slice(1, 0, 100).to_vector<float>(), std::vector<float>(200))
        << "what does not count";
    EXPECT_NEAR(sum(found.rows).item() / 320, found.loss.item(), 1e-5);
    const std::vector<Tensor> others = gradients_of(*model);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_LT(largest_difference(gradients[i], others[i]), 1e-6) << model->parameters()[i].first;
    }
    const NoGrad only_values;
    EXPECT_EQ(model->loss(tokens, targets, mask, weight).loss.item(), found.loss.item());
  }
}

TEST(LossInPieces, OfFewLogitsIsThatOfThemAllToTheBit) {
  const auto model = make("transformer", false, 11);
  const Tensor tokens = some_ids({3, 20}, 11, "tokens"), mask = Tensor::full({3, 20}, 1, DType::boolean);
  const Tensor weight = Tensor::scalar(1.0 / 60);
  backward(model->loss(tokens, tokens, mask, weight).loss);
  const std::vector<Tensor> found = gradients_of(*model);
  model->clear_gradients();
  backward(cross_entropy(model->forward(tokens), tokens, mask, weight));
  const std::vector<Tensor> expected = gradients_of(*model);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].to_vector<float>(), expected[i].to_vector<float>());
  }
}

struct Found {
  Tensor loss, d_x, d_head;
};

Found differentiate(const Tensor& given_x, const Tensor& given_head, bool in_pieces) {
  Tensor x = given_x.clone(), head = given_head.clone();
  set_requires_grad(x);
  set_requires_grad(head);
  const std::int64_t rows = x.size(0);
  const Tensor targets = some_ids({rows}, head.size(0), "targets"), mask = Tensor::full({rows}, 1, DType::boolean);
  const Tensor weight = Tensor::scalar(1.0 / static_cast<double>(rows), x.dtype());
  const Tensor loss = in_pieces ? linear_cross_entropy(x, head, targets, mask, weight, 70).loss
                                : cross_entropy(linear(x, head), targets, mask, weight);
  backward(loss);
  return {loss.detach(), gradient(x), gradient(head)};
}

// Its f32 error is at most twice the error of the two operations; its gradients' errors three times.
TEST(LossInPieces, IsAsExactAsTheTwoOperations) {
  const Tensor x = normal({300, 64}, "x", DType::f32), head = normal({1000, 64}, "head", DType::f32);
  const Found exact = differentiate(x.to(DType::f64), head.to(DType::f64), false);
  const Found plain = differentiate(x, head, false), strips = differentiate(x, head, true);
  const auto error = [&](Tensor Found::*of, const Found& found) { return largest_difference(exact.*of, found.*of); };
  EXPECT_LE(error(&Found::loss, strips), 2 * error(&Found::loss, plain) + 1e-7);
  EXPECT_LE(error(&Found::d_x, strips), 3 * error(&Found::d_x, plain));
  EXPECT_LE(error(&Found::d_head, strips), 3 * error(&Found::d_head, plain));
  EXPECT_GT(error(&Found::d_x, plain), 0);
}

TEST(LossInPieces, IsFiniteWhereLogitsAreLarge) {
  const Found found = differentiate(multiply(normal({90, 8}, "x", DType::f32), 1e3),
                                    multiply(normal({100, 8}, "head", DType::f32), 1e3), true);
  for (const Tensor& x : {found.loss, found.d_x, found.d_head}) {
    for (const float value : x.to_vector<float>()) ASSERT_TRUE(std::isfinite(value));
  }
  EXPECT_GT(found.loss.item(), 1e5);
}

// Captured once and replayed, with other numbers in the same tensors, it gives the same bits.
class RepeatedLoss : public testing::OnDevice {};

TEST_P(RepeatedLoss, IsTheSameToTheBit) {
  const Device device = GetParam();
  const auto there = [&](const Tensor& x) { return x.to(device).clone(); };
  Tensor x = there(normal({7, 5}, "x", DType::f32)), head = there(normal({9, 5}, "head", DType::f32));
  const Tensor targets = there(some_ids({7}, 9, "targets")), mask = Tensor::full({7}, 1, DType::boolean, device);
  const Tensor weight = Tensor::scalar(0.25, DType::f32, device);
  Tensor loss = Tensor::empty({}, DType::f32, device), d_x = there(x), d_head = there(head);
  set_requires_grad(x);
  set_requires_grad(head);
  const auto work = [&] {
    clear_gradient(x);
    clear_gradient(head);
    const Tensor found = linear_cross_entropy(x, head, targets, mask, weight, 3).loss;
    backward(multiply(found, 2));
    loss.copy_from(found.detach());
    d_x.copy_from(gradient(x));
    d_head.copy_from(gradient(head));
    clear_gradient(x);
    clear_gradient(head);
  };
  const auto numbers = [&] {
    std::vector<std::vector<float>> all;
    for (const Tensor& y : {loss, d_x, d_head}) all.push_back(y.to(Device{}).to_vector<float>());
    return all;
  };
  GraphedStep repeated;
  for (int n = 0; n < 4; ++n) {
    x.detach().copy_from(normal({7, 5}, n % 2 == 0 ? "one" : "other", DType::f32));
    repeated(device, work);
    const auto replayed = numbers();
    work();
    EXPECT_EQ(replayed, numbers()) << n;
  }
  EXPECT_EQ(repeated.refusal(), "");
}

TALLY_ON_EVERY_DEVICE(RepeatedLoss);

class GradientOfLogits : public testing::OnDevice {};

// For an almost certain target the gradient is 1 less than a share of nearly 1. It is as exact as the gradient of any
// other logit, although the difference of the two has lost most digits.
TEST_P(GradientOfLogits, IsAsExactWhereTheTargetIsSure) {
  constexpr std::int64_t rows = 6, width = 70;
  Tensor logits = normal({rows, width}, "logits", DType::f32);
  const std::vector<float> of_target{13, 9, 5, 4, 0, -6};
  const std::vector<std::int32_t> targets{3, 69, 0, 40, 7, 20};
  std::vector<float> x = logits.to_vector<float>();
  for (std::size_t row = 0; row < rows; ++row) {
    x[row * width + static_cast<std::size_t>(targets[row])] = of_target[row];
  }
  logits = Tensor::from(x, {rows, width}).to(GetParam()).clone();
  set_requires_grad(logits);
  backward(cross_entropy(logits, Tensor::from(targets, {rows}).to(GetParam()),
                         Tensor::full({rows}, 1, DType::boolean, GetParam())));
  const std::vector<float> found = gradient(logits).to(Device{}).to_vector<float>();
  for (std::size_t row = 0; row < rows; ++row) {
    const auto target = static_cast<std::size_t>(targets[row]);
    double all = 0, others = 0;
    for (std::size_t v = 0; v < width; ++v) {
      const double share = std::exp(static_cast<double>(x[row * width + v]));
      all += share;
      others += v == target ? 0 : share;
    }
    for (std::size_t v = 0; v < width; ++v) {
      const double logit = x[row * width + v];
      const double exact = (v == target ? -others : std::exp(logit)) / all / rows;
      // Twice the effect, in the exponent, of half a unit in the last place of the logit and of log_sum.
      const double units = std::abs(logit) + std::abs(std::log(all)) + 2;
      const double tolerance = units * std::numeric_limits<float>::epsilon() * std::abs(exact);
      EXPECT_NEAR(found[row * width + v], exact, tolerance) << "row " << row << ", logit " << v;
    }
  }
}
TALLY_ON_EVERY_DEVICE(GradientOfLogits);

}  // namespace tally::loss_test

// Operations and update rules against values made in another language (tests/reference/README.md, "Plain operations").
// Every tensor of the file belongs to an operation named here or in `elsewhere`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/io/safetensors.hpp"
#include "tests/autograd/hyperparameters.hpp"
#include "tests/devices.hpp"

namespace tally::reference_test {

constexpr const char* path = TALLY_SOURCE_DIR "/tests/reference/ops.safetensors";

// One case of the file: its inputs, and the numbers that the operation needs.
struct Case {
  const SafetensorsFile& file;
  std::string name;  // "softmax.odd"

  Tensor in(int number, DType dtype) const {
    const Tensor x = file.read(formatted("{}.in{}", name, number));
    return (is_floating(x.dtype()) ? x.to(dtype) : x).to(default_device());
  }
  std::string text(const std::string& key) const { return file.metadata().at(formatted("{}.{}", name, key)); }
  double number(const std::string& key) const { return std::stod(text(key)); }
};

using Run = Tensor (*)(const Case& c, DType dtype);

template <auto function>
Tensor of_one(const Case& c, DType dtype) {
  return function(c.in(0, dtype));
}

// The three states after each step, [3, n].
template <class Step>
Tensor run_steps(const Case& c, DType dtype, Step&& step) {
  const Tensor parameter = c.in(0, dtype).clone();
  const Tensor gradients = c.in(1, dtype);
  const Tensor states = Tensor::empty(gradients.shape(), dtype, default_device());
  for (std::int64_t n = 0; n < gradients.size(0); ++n) {
    step(parameter, gradients.detached_select(0, n).clone(), n + 1);
    states.detached_select(0, n).copy_from(parameter);
  }
  return states;
}

Tensor run_sgd(const Case& c, DType dtype) {
  const double momentum = c.number("momentum");
  const Tensor buffer = momentum > 0 ? Tensor::zeros(c.in(0, dtype).shape(), dtype, default_device()) : Tensor();
  return run_steps(c, dtype, [&](const Tensor& parameter, const Tensor& gradient, std::int64_t) {
    const Tensor row = testing::hyperparameters_for(
        parameter, row_of(SgdHyperparameters<double>{
                       .scale = 1, .decay = c.number("weight_decay"), .momentum = momentum, .lr = c.number("lr")}));
    kernels(parameter.device())
        .sgd_step(testing::Only(parameter), testing::Only(buffer), testing::Only(gradient), testing::Only(row));
  });
}

Tensor run_adam(const Case& c, DType dtype) {
  const bool decoupled = c.name.starts_with("adamw");
  const Tensor m = Tensor::zeros(c.in(0, dtype).shape(), dtype, default_device()), v = m.clone();
  return run_steps(c, dtype, [&](const Tensor& parameter, const Tensor& gradient, std::int64_t step) {
    const Tensor row = testing::hyperparameters_for(
        parameter, row_of(adam_hyperparameters({.lr = c.number("lr"),
                                                .beta1 = c.number("beta1"),
                                                .beta2 = c.number("beta2"),
                                                .eps = c.number("eps"),
                                                .weight_decay = decoupled ? c.number("weight_decay") : 0.0,
                                                .gradient_scale = 1,
                                                .decoupled = decoupled,
                                                .step = step})));
    kernels(parameter.device())
        .adam_step(testing::Only(parameter), testing::Only(m), testing::Only(v), testing::Only(gradient),
                   testing::Only(row));
  });
}

Tensor run_cumsum(const Case& c, DType dtype) {
  const Tensor x = c.in(0, dtype), y = Tensor::empty(x.shape(), dtype, x.device());
  kernels(x.device()).cumsum(y.view(), x.view(), c.text("reverse") == "true", c.text("causal") == "true");
  return y;
}

// The loss and the gradients, one after the other, from strips of four rows.
Tensor run_linear_cross_entropy(const Case& c, DType dtype) {
  Tensor x = c.in(0, dtype).clone(), head = c.in(1, dtype).clone();
  set_requires_grad(x);
  set_requires_grad(head);
  const Tensor targets = c.in(2, dtype), mask = c.in(3, dtype);
  const auto count = static_cast<double>(counted_targets(targets, mask, head.size(0)));
  const Tensor weight = Tensor::scalar(1 / count, dtype, x.device());
  const Tensor loss = linear_cross_entropy(x, head, targets, mask, weight, 4).loss;
  backward(loss);
  return concat({loss.detach().detached_reshape({1}), gradient(x).detached_reshape({x.numel()}),
                 gradient(head).detached_reshape({head.numel()})},
                0);
}

// h of every step, and the gradients, one after the other.
Tensor run_lstm(const Case& c, DType dtype) {
  std::vector<Tensor> in;
  for (int n = 0; n < 4; ++n) {
    in.push_back(c.in(n, dtype).clone());
    set_requires_grad(in.back());
  }
  const Tensor y = lstm(in[0], in[1], in[2], in[3]).hidden;
  backward(y, c.in(4, dtype));
  std::vector<Tensor> parts{y.detach()};
  for (const Tensor& leaf : in) parts.push_back(gradient(leaf));
  for (Tensor& part : parts) part = part.to_dense().detached_reshape({part.numel()});
  return concat(parts, 0);
}

const std::map<std::string, Run> runs = {
    {"softmax", of_one<softmax>},
    {"causal_softmax", of_one<causal_softmax>},
    {"gelu", of_one<gelu>},
    {"gelu_tanh", of_one<gelu_tanh>},
    {"silu", of_one<silu>},
    {"softplus", of_one<softplus>},
    {"sigmoid", of_one<sigmoid>},
    {"tanh", of_one<tanh>},
    {"layer_norm", [](const Case& c,
                      DType type) { return layer_norm(c.in(0, type), c.in(1, type), c.in(2, type), c.number("eps")); }},
    {"rms_norm", [](const Case& c, DType type) { return rms_norm(c.in(0, type), c.in(1, type), c.number("eps")); }},
    {"cross_entropy",
     [](const Case& c, DType type) { return cross_entropy(c.in(0, type), c.in(1, type), c.in(2, type)); }},
    {"linear_cross_entropy", run_linear_cross_entropy},
    {"cumsum", run_cumsum},
    {"lstm", run_lstm},
    {"interpolate",
     [](const Case& c, DType type) {
       // The file fills the square; the operation's triangle is the same below the diagonal.
       return interpolate(c.in(0, type), c.in(1, type));
     }},
    {"rotate",
     [](const Case& c, DType type) {
       return rotate_pairs(c.in(0, type), c.in(1, type), c.in(2, type), c.text("layout") == "interleaved");
     }},
    {"sgd", run_sgd},
    {"adam", run_adam},
    {"adamw", run_adam},
};

// Checked in tests/nn, which computes them; log_softmax is part of cross_entropy here and no operation.
const std::set<std::string> elsewhere = {"log_softmax", "clip", "schedule"};

void expect_equal(const Tensor& found, const Tensor& expected, double epsilons) {
  ASSERT_EQ(to_text(found.shape()), to_text(expected.shape()));
  const double epsilon =
      found.dtype() == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const std::vector<double> a = found.to(DType::f64).to_vector<double>(), b = expected.to_vector<double>();
  double largest = 0, worst = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    largest = std::max(largest, std::abs(b[n]));
    if (!(std::abs(a[n] - b[n]) <= worst)) worst = std::abs(a[n] - b[n]);
  }
  EXPECT_LE(worst, epsilons * epsilon * largest) << "largest magnitude " << largest;
}

class Reference : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Reference);

TEST_P(Reference, EveryCaseIsReproduced) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  int cases = 0;
  for (const SafetensorsEntry& entry : file.entries()) {
    const std::string operation = entry.name.substr(0, entry.name.find('.'));
    if (elsewhere.contains(operation)) continue;
    ASSERT_TRUE(runs.contains(operation)) << entry.name;
    if (!entry.name.ends_with(".out")) continue;
    SCOPED_TRACE(entry.name);
    const Case one{file, entry.name.substr(0, entry.name.size() - 4)};
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(to_text(dtype));
      expect_equal(runs.at(operation)(one, dtype), file.read(entry.name), 16);
    }
    ++cases;
  }
  EXPECT_GE(cases, 40);
}

}  // namespace tally::reference_test

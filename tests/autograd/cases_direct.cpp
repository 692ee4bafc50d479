// Kernels that no operation calls: random numbers and parameter updates.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "autograd/ops.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "core/math/random.hpp"
#include "core/precision.hpp"
#include "tests/autograd/hyperparameters.hpp"
#include "tests/autograd/op_cases.hpp"

namespace tally::testing {
namespace {

using Kind = Operand::Kind;

constexpr RandomStream stream{5, 9, 2};
constexpr SgdHyperparameters<double> sgd{.scale = 0.5, .decay = 0.2, .momentum = 0.9, .lr = 0.1};
constexpr AdamStep adam{.lr = 0.1,
                        .beta1 = 0.8,
                        .beta2 = 0.95,
                        .eps = 1e-3,
                        .weight_decay = 0.2,
                        .gradient_scale = 0.5,
                        .decoupled = false,
                        .step = 3};

const std::vector<Shapes> small_vectors = {{{2, 3}}, {{1}}, {{0, 3}}};
const Shapes large_vector = {{3, 20011}};

// The kernel fills a tensor of the operand's shape and type; its values do not matter.
OpCase draw_case(const std::string& name, std::function<void(const Kernels&, const View&)> fill,
                 std::function<double(std::uint64_t)> element, double tolerance) {
  return {.name = name,
          .kernels = {name},
          .operands = {{Kind::constant}},
          .shapes = small_vectors,
          .large = large_vector,
          .run =
              [fill](const auto& x) {
                const Tensor y = Tensor::empty(x[0].shape(), x[0].dtype(), x[0].device());
                fill(kernels(y.device()), y.view());
                return y;
              },
          .reference =
              [element](const auto& x) {
                Array y(x[0].shape);
                for (std::size_t n = 0; n < y.values.size(); ++n) y.values[n] = element(n);
                return y;
              },
          .differentiable = false,
          .tolerance = tolerance};
}

// Box-Muller on elements 2n and 2n+1 of the stream, as numbers in (0, 1].
double normal_element(std::uint64_t n) {
  const auto uniform = [](std::uint64_t element) { return (stream.bits(element) + 1.0) / 4294967296.0; };
  const double angle = 2 * std::numbers::pi * uniform(2 * n + 1);
  return 1.5 + 2 * std::sqrt(-2 * std::log(uniform(2 * n))) * std::cos(angle);
}

// All that a step changes, in one tensor.
Tensor stacked(const std::vector<Tensor>& parts) {
  Shape shape = parts[0].shape();
  shape[0] *= static_cast<std::int64_t>(parts.size());
  const Tensor all = Tensor::empty(shape, parts[0].dtype(), parts[0].device());
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    all.detached_slice(0, begin, begin + part.size(0)).copy_from(part);
    begin += part.size(0);
  }
  return all;
}

Array stacked(const std::vector<Array>& parts) {
  Shape shape = parts[0].shape;
  shape[0] *= static_cast<std::int64_t>(parts.size());
  Array all(shape);
  all.values.clear();
  for (const Array& part : parts) all.values.insert(all.values.end(), part.values.begin(), part.values.end());
  return all;
}

OpCase step_case(const std::string& name, const std::string& kernel, std::size_t state,
                 std::function<void(const std::vector<Tensor>&)> run,
                 std::function<void(const std::vector<double*>&)> element) {
  std::vector<Operand> operands(state, Operand{Kind::constant, 0.1, 1});
  operands.push_back({Kind::constant, -1, 1});  // the gradient
  const auto repeated = [&](const Shape& shape) { return Shapes(operands.size(), shape); };
  return {.name = name,
          .kernels = {kernel},
          .operands = operands,
          .shapes = {repeated({2, 3}), repeated({1}), repeated({0, 3})},
          .large = repeated({3, 20011}),
          .run =
              [=](const auto& x) {
                std::vector<Tensor> own;
                for (const Tensor& tensor : x) own.push_back(tensor.clone());
                run(own);
                own.pop_back();
                return stacked(own);
              },
          .reference =
              [=](const auto& x) {
                std::vector<Array> own = x;
                for (std::size_t n = 0; n < own[0].values.size(); ++n) {
                  std::vector<double*> numbers;
                  for (Array& array : own) numbers.push_back(&array.values[n]);
                  element(numbers);
                }
                own.pop_back();
                return stacked(own);
              },
          .differentiable = false};
}

void adam_element(const std::vector<double*>& x, bool decoupled) {
  double &p = *x[0], &m = *x[1], &v = *x[2];
  double g = *x[3] * adam.gradient_scale;
  if (decoupled) p *= 1 - adam.lr * adam.weight_decay;
  if (!decoupled) g += adam.weight_decay * p;
  m = adam.beta1 * m + (1 - adam.beta1) * g;
  v = adam.beta2 * v + (1 - adam.beta2) * g * g;
  const double m_hat = m / (1 - std::pow(adam.beta1, 3)), v_hat = v / (1 - std::pow(adam.beta2, 3));
  p -= adam.lr * m_hat / (std::sqrt(v_hat) + adam.eps);
}

OpCase adam_case(const std::string& name, bool decoupled) {
  return step_case(
      name, "adam_step", 3,
      [=](const auto& x) {
        AdamStep settings = adam;
        settings.decoupled = decoupled;
        const Tensor row = hyperparameters_for(x[0], row_of(adam_hyperparameters(settings)));
        kernels(x[0].device()).adam_step(Only(x[0]), Only(x[1]), Only(x[2]), Only(x[3]), Only(row));
      },
      [=](const auto& x) { adam_element(x, decoupled); });
}

// operands: the loss, and numbers whose squares are the sums of squares
OpCase clip_case(const std::string& name, double clip) {
  return {.name = name,
          .kernels = {"clip_scale"},
          .operands = {{Kind::constant, -1, 1}, {Kind::constant, 0.5, 2}},
          .shapes = {{{1}, {7}}, {{1}, {1}}},
          .large = {{1}, {1009}},
          .run =
              [=](const auto& x) {
                Tensor squares = Tensor::empty(x[1].shape(), DType::f64, x[1].device());
                squares.copy_from(multiply(x[1], x[1]).detach());
                const Tensor scales = Tensor::zeros({2, 2}, x[0].dtype(), x[0].device());
                kernels(x[0].device())
                    .clip_scale(scales.detached_select(1, 0).view(), squares.view(), x[0].to_dense().view(), clip);
                return scales;
              },
          .reference =
              [=](const auto& x) {
                double sum = 0;
                for (const double value : x[1].values) sum += value * value;
                const double scale = clip == 0 ? 1 : std::min(1.0, clip / (std::sqrt(sum) + 1e-6));
                Array y({2, 2});
                y.values = {scale, 0, scale, 0};
                return y;
              },
          .differentiable = false};
}

}  // namespace

std::vector<OpCase> direct_cases() {
  return {
      draw_case(
          "random_uniform", [](const Kernels& k, const View& y) { k.random_uniform(y, stream, -1, 3); },
          [](std::uint64_t n) { return -1 + 4 * static_cast<double>(uniform_from_bits(stream.bits(n))); }, 8),
      draw_case(
          "random_normal", [](const Kernels& k, const View& y) { k.random_normal(y, stream, 1.5, 2); }, normal_element,
          8),
      step_case(
          "sgd_momentum", "sgd_step", 2,
          [](const auto& x) {
            const Tensor row = hyperparameters_for(x[0], row_of(sgd));
            kernels(x[0].device()).sgd_step(Only(x[0]), Only(x[1]), Only(x[2]), Only(row));
          },
          [](const auto& x) {
            *x[1] = sgd.momentum * *x[1] + *x[2] * sgd.scale + sgd.decay * *x[0];
            *x[0] -= sgd.lr * *x[1];
          }),
      step_case(
          "sgd_plain", "sgd_step", 1,
          [](const auto& x) {
            const Tensor row = hyperparameters_for(x[0], row_of(sgd));
            kernels(x[0].device()).sgd_step(Only(x[0]), Only(Tensor()), Only(x[1]), Only(row));
          },
          [](const auto& x) { *x[0] -= sgd.lr * (*x[1] * sgd.scale + sgd.decay * *x[0]); }),
      adam_case("adam", false),
      adam_case("adamw", true),
      // Clipped, short enough, and any length allowed: the scales of two parameters, at every second index.
      clip_case("clip_scale", 2),
      clip_case("clip_scale_short", 100),
      clip_case("clip_scale_any", 0),
      {.name = "round_to_bf16",
       .kernels = {"round_to_bf16"},
       .operands = {{Kind::constant}},
       .shapes = small_vectors,
       .large = large_vector,
       .run =
           [](const auto& x) {
             const Tensor given = cast(x[0], DType::f32).to_dense();
             const Tensor rounded = Tensor::empty(given.shape(), DType::bf16, given.device());
             kernels(given.device()).round_to_bf16(Only(rounded), Only(given));
             return cast(rounded, x[0].dtype());
           },
       .reference =
           [](const auto& x) {
             Array y = x[0];
             for (double& value : y.values) value = round_to_bf16(static_cast<float>(value));
             return y;
           },
       .differentiable = false},
      {.name = "squared_norm",
       .kernels = {"squared_norm"},
       .operands = {{Kind::constant, -1, 2}},
       .shapes = small_vectors,
       .large = {{3, 100003}},
       .run =
           [](const auto& x) {
             const Tensor result = Tensor::empty({1}, DType::f64, x[0].device());
             const Kernels& on = kernels(x[0].device());
             const Tensor dense = x[0].to_dense();
             const Workspace workspace(on.squared_norm_workspace(Only(dense)), x[0].device());
             on.squared_norm(Only(result), Only(dense), workspace.data());
             return result;
           },
       .reference =
           [](const auto& x) {
             Array y({1});
             long double total = 0;  // the sum of many numbers must be closer than the kernel's
             for (const double value : x[0].values) total += static_cast<long double>(value) * value;
             y.values[0] = static_cast<double>(total);
             return y;
           },
       .differentiable = false,
       .tolerance = 64},
  };
}

}  // namespace tally::testing

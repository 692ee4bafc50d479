#include "tasks/bench.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/allocator.hpp"
#include "core/error.hpp"
#include "core/kernels.hpp"
#include "core/random.hpp"
#include "nn/optim/optimizer.hpp"

namespace tally {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Times times_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

Tensor random_tokens(const Shape& shape, std::int64_t vocabulary, std::string_view name) {
  Rng rng(RandomStream{1, stream_of(name), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(vocabulary))));
  }
  return Tensor::from(ids, shape);
}

Tensor everywhere(const Shape& shape) {
  Tensor mask = Tensor::empty(shape, DType::boolean);
  mask.fill(1);
  return mask;
}

}  // namespace

StepTimes bench_step(const BenchOptions& options) {
  check(options.steps >= 1, "bench", "there must be at least one step to measure");
  Transformer model(options.model, options.encoding, options.vocabulary, options.length, 1, options.dtype);
  OptimizerOptions adam;
  adam.lr = 3e-4;
  const auto optimizer = Optimizer::make(adam, model.parameters());
  const Shape shape{options.batch, options.length};
  const Tensor tokens = random_tokens(shape, options.vocabulary, "tokens");
  const Tensor targets = random_tokens(shape, options.vocabulary, "targets");
  const Tensor mask = everywhere(shape);

  StepTimes result;
  result.parameters = model.parameter_count();
  std::vector<double> seconds;
  std::uint64_t allocations = 0;
  for (std::int64_t n = 1; n <= options.warmup + options.steps; ++n) {
    if (n == options.warmup + 1) allocations = memory_counters().system_allocations;
    const double time = seconds_of([&] {
      model.clear_gradients();
      const Pass pass{.training = true, .seed = 1, .step = static_cast<std::uint32_t>(n)};
      backward(cross_entropy(model.forward(tokens, pass), targets, mask));
      optimizer->step(n, adam.lr, 1.0);
    });
    if (n > options.warmup) seconds.push_back(time);
  }
  allocations = memory_counters().system_allocations - allocations;
  result.system_allocations = static_cast<double>(allocations) / static_cast<double>(options.steps);
  result.step = times_of(std::move(seconds));
  return result;
}

namespace {

// One operation with its inputs; gradients go to all floating ones.
struct Operation {
  std::string name, shape;
  std::vector<Tensor> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> compute;
  double flops = 0;  // of a product, forward
};

OperationTimes measure(const Operation& operation, const BenchOptions& options) {
  OperationTimes result;
  result.name = operation.name;
  result.shape = operation.shape;
  std::vector<double> forward, back;
  double input_bytes = 0, floating_bytes = 0, output_bytes = 0;
  for (const Tensor& input : operation.inputs) {
    const double bytes = static_cast<double>(input.numel()) * static_cast<double>(size_of(input.dtype()));
    input_bytes += bytes;
    if (is_floating(input.dtype())) floating_bytes += bytes;
  }
  for (std::int64_t n = 0; n < options.warmup + options.steps; ++n) {
    Tensor y;
    const double forward_time = seconds_of([&] { y = operation.compute(operation.inputs); });
    const Tensor d_y = Tensor::full(y.shape(), 1.0, y.dtype());
    output_bytes = static_cast<double>(y.numel()) * static_cast<double>(size_of(y.dtype()));
    const double backward_time = seconds_of([&] { backward(y, d_y); });
    for (const Tensor& input : operation.inputs) {
      if (requires_grad(input)) clear_gradient(input);
    }
    if (n < options.warmup) continue;
    forward.push_back(forward_time);
    back.push_back(backward_time);
  }
  result.forward = times_of(std::move(forward));
  result.backward = times_of(std::move(back));
  result.product = operation.flops > 0;
  result.forward_work = result.product ? operation.flops : input_bytes + output_bytes;
  result.backward_work = result.product ? 2 * operation.flops : input_bytes + output_bytes + floating_bytes;
  return result;
}

OperationTimes measure_adam(const BenchOptions& options, std::int64_t rows, std::int64_t columns) {
  NamedTensors parameters{{"weight", Tensor::full({rows, columns}, 0.5, options.dtype)}};
  set_requires_grad(parameters[0].second);
  set_gradient(parameters[0].second, Tensor::full({rows, columns}, 0.1, options.dtype));
  const auto optimizer = Optimizer::make(OptimizerOptions{}, parameters);
  std::vector<double> seconds;
  for (std::int64_t n = 1; n <= options.warmup + options.steps; ++n) {
    const double time = seconds_of([&] { optimizer->step(n, 1e-3, 1.0); });
    if (n > options.warmup) seconds.push_back(time);
  }
  OperationTimes result;
  result.name = "adamw";
  result.shape = to_text(Shape{rows, columns});
  result.forward = times_of(std::move(seconds));
  // Reads parameter, gradient and two moments, writes all but the gradient.
  result.forward_work = 7.0 * static_cast<double>(rows * columns) * static_cast<double>(size_of(options.dtype));
  return result;
}

}  // namespace

std::vector<OperationTimes> bench_operations(const BenchOptions& options) {
  check(options.steps >= 1, "bench", "there must be at least one run to measure");
  options.model.validate();
  const std::int64_t B = options.batch, T = options.length, D = options.model.width, H = options.model.heads;
  const std::int64_t d = D / H, V = options.vocabulary,
                     hidden = options.model.hidden > 0 ? options.model.hidden : 4 * D;
  constexpr std::int64_t positions = 65;
  const auto normal = [&](const Shape& shape, double mean = 0) {
    Tensor x = Tensor::empty(shape, options.dtype);
    kernels(x.device()).random_normal(x.view(), RandomStream{1, stream_of(to_text(shape)), 0}, mean, 1.0);
    set_requires_grad(x);
    return x;
  };

  // Inputs are made when their turn comes: together the squares would not fit in memory.
  std::vector<OperationTimes> results;
  const auto add = [&](Operation operation) { results.push_back(measure(operation, options)); };
  const auto product = [&](const std::string& name, const Shape& a, const Shape& b, bool transposed_b) {
    const std::int64_t n = b[transposed_b ? b.rank - 2 : b.rank - 1];
    add({name,
         concat(a, " x ", b, transposed_b ? " transposed" : ""),
         {normal(a), normal(b)},
         [transposed_b](const auto& in) {
           return transposed_b ? matmul(in[0], transpose(in[1], -1, -2)) : matmul(in[0], in[1]);
         },
         2.0 * static_cast<double>(a.numel()) * static_cast<double>(n)});
  };
  const auto simple = [&](const std::string& name, const Shape& shape, Tensor (*compute)(const Tensor&)) {
    add({name, to_text(shape), {normal(shape)}, [compute](const auto& in) { return compute(in[0]); }});
  };
  const Shape stream{B, T, D}, square{B, H, T, T};

  product("linear D to D", {B * T, D}, {D, D}, true);
  product("linear D to hidden", {B * T, D}, {hidden, D}, true);
  product("linear hidden to D", {B * T, hidden}, {D, hidden}, true);
  product("scores q k", {B, H, T, d}, {B, H, T, d}, true);
  product("weights v", square, {B, H, T, d}, false);
  product("table q e", {B, H, T, d}, {positions, d}, true);
  add({"add", to_text(stream), {normal(stream), normal(stream)}, [](const auto& in) { return in[0] + in[1]; }});
  simple("gelu", {B, T, hidden}, gelu);
  simple("sigmoid", square, sigmoid);
  simple("causal softmax", square, causal_softmax);
  simple("causal suffix sum", square, causal_suffix_sum);
  add({"interpolate causal",
       concat(square, " in ", Shape{B, H, T, positions}),
       {normal({B, H, T, positions}), normal(square, static_cast<double>(positions) / 2)},
       [](const auto& in) { return interpolate_causal(in[0], in[1]); }});
  add({"read distance", concat(Shape{B, H, T, T}, " of width ", T), {normal(square)}, [T](const auto& in) {
         return read_distance(in[0], T, false);
       }});
  add({"layer norm", to_text(stream), {normal(stream), normal({D}), normal({D})}, [](const auto& in) {
         return layer_norm(in[0], in[1], in[2]);
       }});
  add({"rms norm", to_text(stream), {normal(stream), normal({D})}, [](const auto& in) {
         return rms_norm(in[0], in[1]);
       }});
  add({"rotate pairs", to_text(Shape{B, H, T, d}), {normal({B, H, T, d / 2 * 2})}, [&](const auto& in) {
         const Tensor angle = Tensor::full({T, d / 2}, 0.6, options.dtype);
         return rotate_pairs(in[0], angle, angle, false);
       }});
  add({"dropout", to_text(stream), {normal(stream)}, [](const auto& in) {
         return dropout(in[0], 0.1, RandomStream{1, 2, 3});
       }});
  add({"embedding",
       concat(Shape{V, D}, " to ", stream),
       {normal({V, D}), random_tokens({B, T}, V, "ids")},
       [](const auto& in) { return embedding(in[0], in[1]); }});
  add({"cross entropy",
       to_text(Shape{B, T, V}),
       {normal({B, T, V}), random_tokens({B, T}, V, "targets"), everywhere({B, T})},
       [](const auto& in) { return cross_entropy(in[0], in[1], in[2]); }});
  results.push_back(measure_adam(options, hidden, D));
  return results;
}

}  // namespace tally

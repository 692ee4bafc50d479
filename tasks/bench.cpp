#include "tasks/bench.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/backend.hpp"
#include "core/error.hpp"
#include "core/graph.hpp"
#include "core/kernels.hpp"
#include "core/random.hpp"
#include "nn/attention.hpp"
#include "nn/optim/optimizer.hpp"

namespace tally {
namespace {

using Clock = std::chrono::steady_clock;

// Until the default device has done it.
double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  synchronize(default_device());
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Times times_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

Tensor random_tokens(const Shape& shape, std::int64_t vocabulary, std::string_view name) {
  if (default_device().type == DeviceType::meta) return Tensor::empty(shape, DType::i32, default_device());
  Rng rng(RandomStream{1, stream_of(name), 0});
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(vocabulary))));
  }
  return Tensor::from(ids, shape, default_device());
}

// From a standard normal distribution; a leaf that gets a gradient.
Tensor random_leaf(std::string_view name, const Shape& shape, DType dtype, double mean = 0) {
  Tensor x = Tensor::empty(shape, dtype, default_device());
  kernels(x.device()).random_normal(x.view(), RandomStream{1, stream_of(name), 0}, mean, 1.0);
  set_requires_grad(x);
  return x;
}

Tensor everywhere(const Shape& shape) { return Tensor::full(shape, 1, DType::boolean, default_device()); }

// One layer's B D T^2: a product of queries and keys, or of weights and values, over keys j <= i alone.
double pair_flops(const BenchOptions& options) {
  const auto length = static_cast<double>(options.length);
  return static_cast<double>(options.batch * options.model.width) * length * length;
}

// Forward two products of that kind; backward makes the scores again and has four for the gradients.
constexpr double forward_products = 2, backward_products = 5;

}  // namespace

OptimizerOptions bench_optimiser() {
  OptimizerOptions adam;
  adam.lr = 3e-4;
  return adam;
}

StepTimes bench_step(const BenchOptions& options) {
  check(options.steps >= 1, "bench", "there must be at least one step to measure");
  const Device device = default_device();
  Transformer model(options.model, options.encoding, options.vocabulary, options.length, 1, options.dtype, device);
  const OptimizerOptions adam = bench_optimiser();
  const auto optimizer = Optimizer::make(adam, model.parameters());
  const Shape shape{options.batch, options.length};
  const Tensor tokens = random_tokens(shape, options.vocabulary, "tokens");
  const Tensor targets = random_tokens(shape, options.vocabulary, "targets");
  const Tensor mask = everywhere(shape);
  const Tensor weight = Tensor::full({1}, 1.0 / static_cast<double>(shape.numel()), options.dtype, device);
  Tensor step = Tensor::zeros({1}, DType::i32, device);
  RepeatedWork work;

  StepTimes result;
  result.parameters = model.parameter_count();
  result.flops =
      6.0 * static_cast<double>(model.matrix_parameter_count() * shape.numel()) +
      (forward_products + backward_products) * static_cast<double>(options.model.layers) * pair_flops(options);
  std::vector<double> seconds;
  std::uint64_t allocations = 0;
  for (std::int64_t n = 1; n <= options.warmup + options.steps; ++n) {
    if (n == options.warmup + 1) allocations = memory_counters(device).system_allocations;
    // A graph takes its memory for all of its launches when it is captured, in the second step.
    if (n == std::min<std::int64_t>(options.warmup + 1, 2)) reset_peak_memory(device);
    const double time = seconds_of([&] {
      step.copy_from(Tensor::full({1}, static_cast<double>(n), DType::i32));
      optimizer->prepare(n, adam.lr);
      const auto compute = [&] {
        model.clear_gradients();
        const Pass pass{.training = true, .seed = 1, .step_at = step.view().as<std::uint32_t>()};
        backward(cross_entropy(model.forward(tokens, pass), targets, mask, weight));
        optimizer->update();
        model.project_parameters();
        model.clear_gradients();
      };
      model.reads_back() ? compute() : work(device, compute);
    });
    if (n > options.warmup) seconds.push_back(time);
  }
  allocations = memory_counters(device).system_allocations - allocations;
  result.system_allocations = static_cast<double>(allocations) / static_cast<double>(options.steps);
  result.tensor_bytes = static_cast<double>(memory_counters(default_device()).peak_bytes);
  result.step = times_of(std::move(seconds));
  return result;
}

AttentionTimes bench_attention(const BenchOptions& options) {
  check(options.steps >= 1, "bench", "there must be at least one run to measure");
  options.model.validate();
  const std::int64_t heads = options.model.heads, width = options.model.width;
  const Initializer start(1, start_values_from_text(options.model.init), options.dtype, default_device());
  const Attention attention(start, width, heads, options.model.dropout, 1.0,
                            options.model.attention == "composed" ? AttentionForm::composed : AttentionForm::tiled);
  std::vector<Tensor> leaves;
  EncodingSetup setup = EncodingSetup::of(options.model, options.length, start);
  setup.parameter = [&](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    leaves.push_back(start.make(name, shape, fill));
    set_requires_grad(leaves.back());
    return leaves.back();
  };
  const LayerEncoding encoding = options.encoding.make(setup);
  const Shape split{options.batch, heads, options.length, setup.head_width};
  const Tensor x = random_leaf("x", {options.batch, options.length, width}, options.dtype).detach();
  for (const char* name : {"q", "k", "v"}) leaves.push_back(random_leaf(name, split, options.dtype));
  const Tensor q = leaves.end()[-3], k = leaves.end()[-2], v = leaves.end()[-1];

  AttentionTimes result;
  std::vector<double> forward, back, both;
  const Tensor d_y = Tensor::full(split, 1.0, options.dtype, default_device());
  for (std::int64_t n = 1; n <= options.warmup + options.steps; ++n) {
    if (n == options.warmup + 1) reset_peak_memory(default_device());
    const Pass pass{.training = true, .seed = 1, .step = static_cast<std::uint32_t>(n)};
    Tensor y;
    const double forward_time = seconds_of([&] { y = attention.attend(x, q, k, v, encoding, pass); });
    const double backward_time = seconds_of([&] { backward(y, d_y); });
    for (const Tensor& leaf : leaves) clear_gradient(leaf);
    if (n <= options.warmup) continue;
    forward.push_back(forward_time);
    back.push_back(backward_time);
    both.push_back(forward_time + backward_time);
  }
  result.tensor_bytes = static_cast<double>(memory_counters(default_device()).peak_bytes);
  result.forward = times_of(std::move(forward));
  result.backward = times_of(std::move(back));
  result.both = times_of(std::move(both));
  result.forward_flops = forward_products * pair_flops(options);
  result.backward_flops = backward_products * pair_flops(options);
  return result;
}

double bench_gemm(DType dtype) {
  constexpr std::int64_t m = 8192, k = 256, n = 1024;
  const Tensor a = random_leaf("a", {m, k}, dtype).detach(), b = random_leaf("b", {k, n}, dtype).detach();
  std::vector<double> seconds;
  for (int run = 0; run < 12; ++run) {
    const double time = seconds_of([&] { matmul(a, b); });
    if (run >= 2) seconds.push_back(time);
  }
  return 2.0 * m * k * n / times_of(std::move(seconds)).median;
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
    const Tensor d_y = Tensor::full(y.shape(), 1.0, y.dtype(), y.device());
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
  NamedTensors parameters{{"weight", Tensor::full({rows, columns}, 0.5, options.dtype, default_device())}};
  set_requires_grad(parameters[0].second);
  set_gradient(parameters[0].second, Tensor::full({rows, columns}, 0.1, options.dtype, default_device()));
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
    return random_leaf(to_text(shape), shape, options.dtype, mean);
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
         const Tensor angle = Tensor::full({T, d / 2}, 0.6, options.dtype, in[0].device());
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

#include "tasks/checks/bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "core/error.hpp"
#include "core/math/random.hpp"
#include "nn/attention/attention.hpp"
#include "nn/parameter_choice.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/data/batch.hpp"
#include "tasks/evaluation/evaluate.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tasks/training/train_step.hpp"

namespace tally {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds until the default device has finished.
double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  synchronize(default_device());
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Seconds of the measured runs, by direction.
template <std::size_t Directions>
using Seconds = std::array<std::vector<double>, Directions>;

// Calls measure(n) for n = 1, 2, ..; it returns the seconds of each direction. Calls before_measured() once the warm-up
// is over.
template <std::size_t Directions>
Seconds<Directions> repeat(
    const BenchOptions& options, const std::function<std::array<double, Directions>(std::int64_t n)>& measure,
    const std::function<void()>& before_measured = [] {}) {
  check(options.steps >= 1, "bench", "there must be at least one run to measure");
  Seconds<Directions> seconds;
  for (std::int64_t n = 1; n <= options.warmup + options.steps; ++n) {
    if (n == options.warmup + 1) before_measured();
    const std::array<double, Directions> times = measure(n);
    for (std::size_t d = 0; d < Directions && n > options.warmup; ++d) seconds[d].push_back(times[d]);
  }
  return seconds;
}

// prefix: "forward_". Returns the median.
double set_times(JsonValue& json, const std::string& median, const std::string& prefix, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  json.set(median, median_of(seconds));
  json.set(prefix + "min_s", seconds.front());
  json.set(prefix + "max_s", seconds.back());
  return median_of(seconds);
}

// Also sets the work per second.
void set_times(JsonValue& json, const std::string& name, std::vector<double> seconds, double work, const char* unit) {
  const double median = set_times(json, name + "_s", name + "_", std::move(seconds));
  json.set(formatted("{}_{}_per_s", name, unit), median > 0 ? work / median / 1e9 : 0.0);
}

std::int64_t rate(double work, double seconds) { return seconds > 0 ? std::llround(work / seconds) : 0; }

void set_peak(JsonValue& json) {
  const std::size_t bytes = memory_counters(default_device()).peak_bytes;
  json.set("tensor_peak_bytes", bytes);
  json.set("tensor_peak_mib", std::llround(static_cast<double>(bytes) / (1 << 20)));
}

// The training steps of a run, on its batches from the first on.
struct TrainingSteps {
  explicit TrainingSteps(const RunConfig& run)
      : config(run),
        task(run.make_task()),
        model(run.make_model(*task)),
        optimizer(Optimizer::make(run.optimiser, train_only(model->parameters(), run.run.train))),
        train_step(*model, *optimizer, seed(), run.run.at_once()),
        order(task->splits().front(), run.run.batch, seed()) {}

  std::uint64_t seed() const { return static_cast<std::uint64_t>(config.run.seed); }
  Batch batch(std::int64_t n) { return batch_of(*task, order, n); }

  const RunConfig& config;
  std::unique_ptr<Task> task;
  std::unique_ptr<SequenceModel> model;
  std::unique_ptr<Optimizer> optimizer;
  TrainStep train_step;
  TrainingOrder order;
};

// From a standard normal distribution. The result is a leaf that requires a gradient.
Tensor random_leaf(std::string_view name, const Shape& shape, DType dtype) {
  Tensor x = Tensor::empty(shape, dtype, default_device());
  kernels(x.device()).random_normal(x.view(), RandomStream{1, stream_of(name), 0}, 0.0, 1.0);
  set_requires_grad(x);
  return x;
}

// One layer's B D T^2: the matmul of queries and keys, or of weights and values, over keys j <= i only.
double pair_flops(const BenchOptions& options) {
  const auto length = static_cast<double>(options.length);
  return static_cast<double>(options.config.run.batch * options.config.model.width) * length * length;
}

// Forward has two such matmuls. Backward recomputes the scores and has four for the gradients.
constexpr double forward_products = 2, backward_products = 5;

}  // namespace

BenchOptions::BenchOptions(RunConfig run) : config(std::move(run)) {
  const auto task = config.make_task();
  const Split& train = task->splits().front();
  length = train.length;
  max_length = task->max_length();
  if (train.count > 0) config.run.batch = std::min(config.run.batch, train.count);
  vocabulary = static_cast<std::int64_t>(task->vocabulary().size());
}

JsonValue bench_step(const BenchOptions& options) {
  const RunConfig& config = options.config;
  TrainingSteps run(config);
  const std::int64_t all = options.warmup + options.steps;

  StepReport report;
  double tokens = 0;
  std::uint64_t allocations = 0;
  const auto counted = [] { return memory_counters(default_device()).system_allocations; };
  const auto seconds = repeat<1>(
      options,
      [&](std::int64_t n) {
        // A graph allocates the memory for all of its launches when it is captured, in the second step.
        if (n == std::min<std::int64_t>(options.warmup + 1, 2)) reset_peak_memory(default_device());
        const Batch batch = run.batch(n);
        tokens += n > options.warmup ? static_cast<double>(batch.tokens.numel()) : 0;
        return std::array{seconds_of([&] { report = run.train_step(batch, n, std::max(config.run.steps, all)); })};
      },
      [&] { allocations = counted(); });
  const auto steps = static_cast<double>(options.steps);
  tokens /= steps;
  JsonValue json = JsonValue::object(
      {{"vocab", options.vocabulary}, {"layers", config.model.layers}, {"parameters", run.model->parameter_count()}});
  json.set("tokens_per_s", rate(tokens, set_times(json, "step_s", "", seconds[0])));
  double flops = 6 * static_cast<double>(run.model->matrix_parameter_count()) * tokens;
  if (config.model.is_transformer()) {
    flops += (forward_products + backward_products) * static_cast<double>(config.model.layers) * pair_flops(options);
  }
  json.set("gflop", flops / 1e9);
  json.set("loss", report.loss);
  json.set("grad_norm", report.grad_norm);
  set_peak(json);
  json.set("system_allocations_per_step", static_cast<double>(counted() - allocations) / steps);
  if (const DeviceGraph* const graph = run.train_step.graph(); graph != nullptr) {
    const GraphSize size = graph->size();
    json.set("graph_kernels", size.kernels);
    json.set("graph_allocations", size.allocations);
    json.set("graph_memory_bytes", size.bytes);
  }
  return json;
}

JsonValue bench_attention(const BenchOptions& options) {
  const ModelOptions& model = options.config.model;
  const DType dtype = options.config.dtype();
  model.validate();
  const Initializer start(1, start_values_from_text(model.init), dtype, default_device());
  const Attention attention(start, model);
  std::vector<Tensor> leaves;
  EncodingSetup setup = EncodingSetup::of(model, options.max_length, start);
  setup.make_parameter = [&](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    leaves.push_back(start.make(name, shape, fill));
    set_requires_grad(leaves.back());
    return leaves.back();
  };
  const LayerEncoding encoding = options.config.encoding.make(setup);
  const Shape split{options.config.run.batch, model.heads, options.length, setup.head_width};
  const Tensor x = random_leaf("x", {split[0], options.length, model.width}, dtype).detach();
  Shape of_keys = split;
  of_keys[1] = model.key_heads();
  for (const char* name : {"q", "k", "v"}) leaves.push_back(random_leaf(name, *name == 'q' ? split : of_keys, dtype));
  const Tensor q = leaves.end()[-3], k = leaves.end()[-2], v = leaves.end()[-1];
  const Tensor d_y = Tensor::full(split, 1.0, dtype, default_device());

  const auto seconds = repeat<3>(
      options,
      [&](std::int64_t n) {
        const ForwardContext pass{.training = true, .step = {.seed = 1, .number = static_cast<std::uint32_t>(n)}};
        Tensor y;
        const double forward = seconds_of([&] { y = attention.attend(x, q, k, v, encoding, pass); });
        const double back = seconds_of([&] { backward(y, d_y); });
        for (const Tensor& leaf : leaves) clear_gradient(leaf);
        return std::array{forward, back, forward + back};
      },
      [] { reset_peak_memory(default_device()); });
  JsonValue json = JsonValue::object();
  const double pairs = pair_flops(options);
  set_times(json, "forward", seconds[0], forward_products * pairs, "gflop");
  set_times(json, "backward", seconds[1], backward_products * pairs, "gflop");
  set_times(json, "both", seconds[2], (forward_products + backward_products) * pairs, "gflop");
  json.set("tokens_per_s", rate(static_cast<double>(options.config.run.batch * options.length), json.real("both_s")));
  set_peak(json);
  return json;
}

double bench_gemm(DType dtype) {
  constexpr std::int64_t m = 4096, k = 256, n = 1024;
  const Tensor a = random_leaf("a", {m, k}, dtype).detach(), b = random_leaf("b", {k, n}, dtype).detach();
  std::vector<double> seconds;
  for (int run = 0; run < 7; ++run) seconds.push_back(seconds_of([&] { matmul(a, b); }));
  std::sort(seconds.begin() + 2, seconds.end());  // two for warm-up
  return 2.0 * m * k * n / seconds[4] / 1e9;
}

RelativeCost cost_relative_to_none(const EncodingChoice& choice) {
  constexpr std::int64_t warmup = 2, fewest_rounds = 3, most_rounds = 9, steps_of_round = 3;
  constexpr std::int64_t most_steps = warmup + most_rounds * steps_of_round;
  constexpr double patience = 2;  // seconds, for slow encodings
  const auto configured = [&](const EncodingChoice& encoding) {
    RunConfig config = RunConfig::make("flip-flop", encoding.text(), "quick");
    config.encoding = encoding.clone();
    ModelOptions& model = config.model;  // both models get the sizes that the choice requires
    const std::int64_t head_width = model.width / model.heads;
    model.layers = std::max(model.layers, choice.least_layers());
    model.heads = std::max(model.heads, choice.least_heads());
    model.width = model.heads * head_width;
    return BenchOptions(std::move(config));
  };
  const BenchOptions plain = configured(EncodingChoice::parse("none")), own = configured(choice);
  const auto bytes_of = [](const BenchOptions& options) {
    return estimate_step(options.model(), options.config, options.length, warmup).total();
  };
  RelativeCost cost;
  cost.bytes = bytes_of(own);
  cost.memory = cost.bytes / bytes_of(plain);

  TrainingSteps plain_steps(plain.config), own_steps(own.config);
  double spent = 0;
  const auto seconds = [&](TrainingSteps& steps, std::int64_t n) {
    const Batch batch = steps.batch(n);
    const double taken = seconds_of([&] { steps.train_step(batch, n, most_steps); });
    spent += taken;
    return taken;
  };
  // The ratio of the fastest steps: other work on the machine interrupts some of them.
  const auto ratio_of_round = [&](std::int64_t first, std::int64_t steps) {
    double of_plain = std::numeric_limits<double>::infinity(), of_own = of_plain;
    for (std::int64_t n = first; n < first + steps; ++n) {
      of_plain = std::min(of_plain, seconds(plain_steps, n));
      of_own = std::min(of_own, seconds(own_steps, n));
    }
    return of_own / of_plain;
  };
  ratio_of_round(1, warmup);
  for (std::int64_t n = 0; n < most_rounds && (n < fewest_rounds || spent < patience); ++n) {
    cost.times.push_back(ratio_of_round(1 + warmup + n * steps_of_round, steps_of_round));
  }
  std::ranges::sort(cost.times);
  return cost;
}

RunCost measure_cost(const RunConfig& config) {
  constexpr std::int64_t most_steps = 4;
  constexpr double patience = 2;  // seconds, for slow models
  const RunOptions& run = config.run;
  TrainingSteps steps(config);
  double step = std::numeric_limits<double>::infinity(), spent = 0;
  for (std::int64_t n = 1; n <= most_steps && spent < patience; ++n) {
    const double seconds = seconds_of([&] { steps.train_step(steps.batch(n), n, std::max(run.steps, most_steps)); });
    step = std::min(step, seconds);
    spent += seconds;
  }
  RunCost cost{.training = step * static_cast<double>(run.steps)};
  const std::int64_t on_the_way = (run.steps - 1) / config.eval_interval();
  for (const Split& split : std::span(steps.task->splits()).subspan(1)) {
    const std::int64_t looked_at = run.eval_count == 0 ? split.count : std::min(run.eval_count, split.count);
    const auto of_one = [&](const auto& evaluate_as, std::int64_t at_once) {
      const std::int64_t batch = std::min(at_once, split.count);
      const double seconds =
          seconds_of([&] { evaluate_as(*steps.model, *steps.task, split.name, batch, batch, nullptr, {}); });
      return seconds / static_cast<double>(batch);
    };
    cost.evaluations +=
        of_one(evaluate, sequences_at_once(split)) * static_cast<double>(split.count + on_the_way * looked_at);
    if (run.eval_generated)
      cost.evaluations += of_one(evaluate_generated, run.eval_batch) * static_cast<double>(split.count);
  }
  return cost;
}

}  // namespace tally

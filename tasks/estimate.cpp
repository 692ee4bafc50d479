// Memory of a training step, from what the operations keep for backward. N = B T tokens of width D, F the MLP's hidden
// layer, S = B H T T pairs. A block keeps:
//   8 N D   its input, two norms, q, k, v, merged heads, the residual between attention and MLP
//   2 N F   the MLP's hidden layer before and after its activation (4 N F for SwiGLU)
//   S       where attention is written out: its weights; with a scan also gates and positions; with dropout the weights
//           that were left. In tiles nothing of that size, and with a scan one number per row and 128 keys
// and the rows of tables that join the scores (H N rows). Beyond that one block at a time holds intermediate results
// and gradients.
#include "tasks/estimate.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include "core/dtype.hpp"
#include "nn/attention.hpp"

namespace tally {
namespace {

// Parameters of any shape that all share one element.
Initializer without_memory(const ModelOptions& options, DType dtype) {
  const Tensor one = Tensor::zeros({}, dtype);
  return Initializer(0, start_values_from_text(options.init), dtype)
      .with_source(
          [one](const std::string&, const Shape& shape, const Fill&) { return one.broadcast_view("estimate", shape); });
}

// What the encoding brings to attention, found by asking it about a sequence of one token.
struct EncodingCosts {
  bool scans = false;
  bool written_out = false;     // weights of its own
  std::int64_t table_rows = 0;  // read by each query, over all tables
};

EncodingCosts costs_of(const RunConfig& config, std::int64_t max_length) {
  const Initializer start = without_memory(config.model, config.dtype());
  EncodingSetup setup;
  setup.width = config.model.width;
  setup.heads = config.model.heads;
  setup.head_width = setup.width / setup.heads;
  setup.layers = config.model.layers;
  setup.max_length = max_length;
  setup.start = &start;
  setup.dtype = config.dtype();
  setup.parameter = [&](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    return start.make(name, shape, fill);
  };
  EncodingCosts costs;
  const Tensor x = Tensor::zeros({1, 1, setup.width}, setup.dtype);
  const Tensor q = split_heads(x, setup.heads), k = q, v = q;
  const AttentionInput in{x, q, k, v, 1.0};
  for (std::int64_t layer = 0; layer < setup.layers; ++layer) {
    setup.layer = layer;
    const LayerEncoding encoding = config.encoding.make(setup);
    Score score;
    encoding.front().encoding->score(in, score);
    costs.written_out = costs.written_out || encoding.front().encoding->replaces_softmax();
    std::int64_t rows = 0;
    if (score.scan) {
      costs.scans = true;
      if (const auto* table = std::get_if<ContextualTable>(&*score.scan)) rows += table->z.size(-1);
      if (const auto* mlp = std::get_if<ContextualMlp>(&*score.scan)) rows += mlp->coefficients.size(-1);
    }
    for (const Bias& bias : score.biases) {
      // Tables by distance are cut to the sequence, which has one token here: the whole has a row for each.
      if (std::holds_alternative<RowToeplitz>(bias)) rows += max_length;
    }
    costs.table_rows = std::max(costs.table_rows, rows);
  }
  return costs;
}

// Sizes of one batch, as doubles.
struct Sizes {
  Sizes(const RunConfig& config, const Task& task, std::int64_t sequences, std::int64_t length)
      : element(static_cast<double>(size_of(config.dtype()))),
        tokens(static_cast<double>(sequences) * static_cast<double>(length)),
        width(static_cast<double>(config.model.width)),
        heads(static_cast<double>(config.model.heads)),
        hidden(config.model.hidden > 0 ? static_cast<double>(config.model.hidden) : 4 * width),
        vocabulary(static_cast<double>(task.vocabulary().size())),
        layers(static_cast<double>(config.model.layers)),
        pairs(heads * tokens * static_cast<double>(length)) {}
  double element, tokens, width, heads, hidden, vocabulary, layers, pairs;
};

// Numbers of attention that a layer keeps for backward.
double attention_kept(const RunConfig& config, const EncodingCosts& costs, const Sizes& n) {
  const bool dropout = config.model.dropout > 0;
  if (costs.written_out || config.model.attention == "composed") {
    return n.pairs * ((costs.scans ? 3 : 1) + (dropout ? 1 : 0));
  }
  return costs.scans ? n.pairs / 128 : 0;
}

double training_activations(const RunConfig& config, const Task& task, const EncodingCosts& costs) {
  const Sizes n(config, task, config.run.batch, task.splits().front().length);
  const bool gated = config.model.activation == "swiglu";
  double block = n.tokens * (8 * n.width + (gated ? 4 : 2) * n.hidden);
  block += n.tokens * n.heads * static_cast<double>(costs.table_rows);
  const double attention = attention_kept(config, costs, n);
  block += attention;
  const double at_work = attention + n.tokens * (2 * n.hidden + 3 * n.vocabulary + n.width);
  return n.element * (n.layers * block + at_work);
}

double evaluation_activations(const RunConfig& config, const Task& task, const EncodingCosts& costs,
                              std::int64_t length) {
  const Sizes n(config, task, config.run.eval_batch, length);
  const bool written_out = costs.written_out || config.model.attention == "composed";
  const double attention = written_out ? n.pairs * (costs.scans ? 4 : 2) : 0;
  return n.element * (attention + n.tokens * (6 * n.width + 2 * n.hidden + 2 * n.vocabulary +
                                              n.heads * static_cast<double>(costs.table_rows)));
}

std::int64_t count_of(const NamedShapes& shapes) {
  std::int64_t count = 0;
  for (const auto& [name, shape] : shapes) count += shape.numel();
  return count;
}

std::int64_t count_without_encoding(const RunConfig& config, const Task& task) {
  return count_of(parameter_shapes(config.model, EncodingChoice::parse("none"),
                                   static_cast<std::int64_t>(task.vocabulary().size()), task.max_length()));
}

MemoryEstimate evaluation_estimate(const RunConfig& config, const Task& task, const EncodingCosts& costs,
                                   std::int64_t length, std::int64_t parameter_count) {
  MemoryEstimate estimate;
  estimate.parameter_count = parameter_count;
  estimate.parameters = static_cast<double>(parameter_count) * static_cast<double>(size_of(config.dtype()));
  estimate.activations = evaluation_activations(config, task, costs, length);
  return estimate;
}

// State tensors of the size of the parameters.
double optimiser_copies(const OptimizerOptions& options) {
  if (options.name == "sgd") return options.momentum > 0 ? 1 : 0;
  return 2;
}

// The number in a file of the system, or nothing that limits.
double limit_in(const char* path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : std::numeric_limits<double>::infinity();
}

}  // namespace

NamedShapes parameter_shapes(const ModelOptions& options, const EncodingChoice& encoding, std::int64_t vocabulary,
                             std::int64_t max_length) {
  const Transformer model(options, encoding, vocabulary, max_length, without_memory(options, DType::f32));
  NamedShapes shapes;
  for (const auto& [name, parameter] : model.parameters()) shapes.emplace_back(name, parameter.shape());
  return shapes;
}

NamedShapes parameter_shapes(const RunConfig& config, const Task& task) {
  return parameter_shapes(config.model, config.encoding, static_cast<std::int64_t>(task.vocabulary().size()),
                          task.max_length());
}

MemoryEstimate estimate_training(const RunConfig& config, const Task& task) {
  const std::int64_t longest = task.max_length();
  const auto with_costs = [&](const EncodingCosts& costs, std::int64_t parameter_count) {
    MemoryEstimate estimate = evaluation_estimate(config, task, costs, longest, parameter_count);
    estimate.activations = std::max(estimate.activations, training_activations(config, task, costs));
    estimate.gradients = estimate.parameters;
    estimate.optimiser = optimiser_copies(config.optimiser) * estimate.parameters;
    estimate.data = static_cast<double>(task.splits().front().count) * sizeof(std::int64_t);
    return estimate;
  };
  // An encoding may compute tables ahead as it is made. So what does not fit even without one is refused before.
  check_fits(with_costs({}, count_without_encoding(config, task)));
  return with_costs(costs_of(config, longest), count_of(parameter_shapes(config, task)));
}

MemoryEstimate estimate_evaluation(const RunConfig& config, const Task& task, std::int64_t length) {
  check_fits(evaluation_estimate(config, task, {}, length, count_without_encoding(config, task)));
  return evaluation_estimate(config, task, costs_of(config, task.max_length()), length,
                             count_of(parameter_shapes(config, task)));
}

double available_memory() {
  double bytes =
      std::min(limit_in("/sys/fs/cgroup/memory.max"), limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  rlimit own{};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY) {
    bytes = std::min(bytes, static_cast<double>(own.rlim_cur));
  }
  std::ifstream file("/proc/meminfo");
  for (std::string name, unit; file >> name;) {
    double kibibytes = 0;
    if (name == "MemAvailable:" && file >> kibibytes) return std::min(bytes, 1024 * kibibytes);
    std::getline(file, unit);
  }
  return bytes;
}

void check_fits(const MemoryEstimate& estimate) {
  const double available = available_memory();
  if (estimate.total() <= available) return;
  std::string parts;
  const auto add = [&parts](std::string_view name, double bytes) {
    if (bytes > 0) parts += concat(parts.empty() ? "" : ", ", name, " ", bytes_text(bytes));
  };
  add("parameters", estimate.parameters);
  add("gradients", estimate.gradients);
  add("optimiser", estimate.optimiser);
  add("activations", estimate.activations);
  add("data", estimate.data);
  throw DoesNotFit(concat("[memory] this needs about ", bytes_text(estimate.total()), " (", parts, "), but there are ",
                          bytes_text(available), "; make the model, the batch or the sequences smaller"));
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) bytes /= 1024, ++unit;
  char text[48];
  std::snprintf(text, sizeof text, "%.3g %s", bytes, units[unit]);
  return text;
}

}  // namespace tally

// Memory of a training step, from what the operations keep for backward. N = B T tokens of width D, F the MLP's hidden
// layer, S = B H T T pairs. A block keeps:
//   8 N D   its input, two norms, q, k, v, merged heads, the residual between attention and MLP
//   2 N F   the MLP's hidden layer before and after its activation (4 N F for SwiGLU)
//   S       where attention is written out: its weights; with a scan also gates and positions; with dropout the weights
//           that were left. In tiles nothing of that size, and with a scan one number per row and 128 keys
// and the rows of tables that join the scores (H N rows), each group of heads by its own encoding. Beyond that one
// block at a time holds intermediate results and gradients.
#include "tasks/estimate.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <string>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
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

// What an encoding brings to attention on a group of heads.
struct GroupCosts {
  double heads = 0;
  bool scans = false;
  bool written_out = false;         // weights or a whole attention of its own
  double table_rows = 0;            // read by each query of each head, over all tables
  double dense = 0, own_dense = 0;  // T x T tables for all sequences, and for each of them
};
using LayerCosts = std::vector<GroupCosts>;

GroupCosts costs_of(const Encoding& encoding, const AttentionInput& in, std::int64_t max_length) {
  GroupCosts costs;
  costs.heads = static_cast<double>(in.q.size(1));
  costs.written_out = encoding.replaces_softmax() || encoding.mix(in).defined();
  Score score;
  encoding.score(in, score);
  costs.scans = score.scan.has_value();
  if (costs.scans) {
    const auto rows_of = [](const Tensor& table) { return static_cast<double>(table.size(-1)); };
    if (const auto* table = std::get_if<ContextualTable>(&*score.scan)) costs.table_rows += rows_of(table->z);
    if (const auto* mlp = std::get_if<ContextualMlp>(&*score.scan)) costs.table_rows += rows_of(mlp->coefficients);
  }
  for (const Bias& bias : score.biases) {
    // Tables by distance are cut to the sequence, which has one token here: the whole has a row for each.
    if (std::holds_alternative<RowToeplitz>(bias)) costs.table_rows += static_cast<double>(max_length);
    if (const auto* dense = std::get_if<Dense>(&bias)) {
      (dense->bias.size(0) == 1 ? costs.dense : costs.own_dense) += static_cast<double>(dense->bias.size(1));
    }
  }
  return costs;
}

// Found by asking the encodings about two sequences of one token.
std::vector<LayerCosts> costs_of(const RunConfig& config, std::int64_t max_length) {
  const NoGrad only_asked;
  const Initializer start = without_memory(config.model, config.dtype());
  EncodingSetup setup;
  setup.width = config.model.width;
  setup.heads = config.model.heads;
  setup.head_width = setup.width / setup.heads;
  setup.layers = config.model.layers;
  setup.max_length = max_length;
  setup.bias = config.model.bias;
  setup.start = &start;
  setup.dtype = config.dtype();
  setup.parameter = [&](std::string_view name, const Shape& shape, const Fill& fill, Scope) {
    return start.make(name, shape, fill);
  };
  const Tensor x = Tensor::zeros({2, 1, setup.width}, setup.dtype);
  std::vector<LayerCosts> costs;
  for (std::int64_t layer = 0; layer < setup.layers; ++layer) {
    setup.layer = layer;
    costs.emplace_back();
    for (const HeadGroup& group : config.encoding.make(setup)) {
      const Tensor q = slice(split_heads(x, setup.heads), 1, 0, group.count);
      costs.back().push_back(costs_of(*group.encoding, {x, q, q, q, 1.0}, max_length));
    }
  }
  return costs;
}

// Sizes of one batch, as doubles.
struct Sizes {
  Sizes(const RunConfig& config, const Task& task, std::int64_t sequences, std::int64_t sequence_length)
      : element(static_cast<double>(size_of(config.dtype()))),
        tokens(static_cast<double>(sequences) * static_cast<double>(sequence_length)),
        width(static_cast<double>(config.model.width)),
        hidden(config.model.hidden > 0 ? static_cast<double>(config.model.hidden) : 4 * width),
        vocabulary(static_cast<double>(task.vocabulary().size())),
        length(static_cast<double>(sequence_length)) {}
  double element, tokens, width, hidden, vocabulary, length;

  // Query and key of so many heads.
  double pairs(double heads) const { return heads * tokens * length; }
};

// Without an encoding.
std::vector<LayerCosts> plain_costs(const RunConfig& config) {
  GroupCosts all;
  all.heads = static_cast<double>(config.model.heads);
  return std::vector<LayerCosts>(static_cast<std::size_t>(config.model.layers), {all});
}

bool is_written_out(const RunConfig& config, const GroupCosts& group) {
  return group.written_out || config.model.attention == "composed";
}

// Numbers of attention that a layer keeps for backward.
double attention_kept(const RunConfig& config, const LayerCosts& groups, const Sizes& n) {
  double numbers = 0;
  for (const GroupCosts& group : groups) {
    const double pairs = n.pairs(group.heads);
    numbers += n.tokens * group.heads * group.table_rows;
    numbers += n.length * n.length * group.dense + n.pairs(group.own_dense);
    if (is_written_out(config, group)) {
      numbers += pairs * ((group.scans ? 3 : 1) + (config.model.dropout > 0 ? 1 : 0));
    } else if (group.scans) {
      numbers += pairs / 128;
    }
  }
  return numbers;
}

double training_activations(const RunConfig& config, const Task& task, const std::vector<LayerCosts>& costs) {
  const Sizes n(config, task, config.run.batch, task.splits().front().length);
  const bool gated = config.model.activation == "swiglu";
  double kept = 0, largest = 0;
  for (const LayerCosts& layer : costs) {
    const double attention = attention_kept(config, layer, n);
    kept += n.tokens * (8 * n.width + (gated ? 4 : 2) * n.hidden) + attention;
    largest = std::max(largest, attention);
  }
  return n.element * (kept + largest + n.tokens * (2 * n.hidden + 3 * n.vocabulary + n.width));
}

double evaluation_activations(const RunConfig& config, const Task& task, const std::vector<LayerCosts>& costs,
                              std::int64_t length) {
  const Sizes n(config, task, config.run.eval_batch, length);
  double largest = 0;
  for (const LayerCosts& layer : costs) {
    double attention = 0;
    for (const GroupCosts& group : layer) {
      attention += n.tokens * group.heads * group.table_rows;
      attention += n.length * n.length * group.dense + n.pairs(group.own_dense);
      if (is_written_out(config, group)) attention += n.pairs(group.heads) * (group.scans ? 4 : 2);
    }
    largest = std::max(largest, attention);
  }
  return n.element * (largest + n.tokens * (6 * n.width + 2 * n.hidden + 2 * n.vocabulary));
}

NamedShapes shapes_without_encoding(const RunConfig& config, const Task& task) {
  return parameter_shapes(config.model, EncodingChoice::parse("none"),
                          static_cast<std::int64_t>(task.vocabulary().size()), task.max_length());
}

MemoryEstimate evaluation_estimate(const RunConfig& config, const Task& task, const std::vector<LayerCosts>& costs,
                                   std::int64_t length, const NamedShapes& shapes) {
  MemoryEstimate estimate;
  estimate.parameter_count = parameter_count(shapes);
  estimate.encoding_parameter_count = encoding_parameter_count(shapes);
  estimate.parameters = static_cast<double>(estimate.parameter_count) * static_cast<double>(size_of(config.dtype()));
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

std::int64_t parameter_count(const NamedShapes& shapes) {
  std::int64_t count = 0;
  for (const auto& [name, shape] : shapes) count += shape.numel();
  return count;
}

std::int64_t encoding_parameter_count(const NamedShapes& shapes) {
  std::int64_t count = 0;
  for (const auto& [name, shape] : shapes) {
    if (name.starts_with("position.") || name.find(".position.") != std::string::npos) count += shape.numel();
  }
  return count;
}

MemoryEstimate estimate_training(const RunConfig& config, const Task& task) {
  const std::int64_t longest = task.max_length();
  const auto with_costs = [&](const std::vector<LayerCosts>& costs, const NamedShapes& shapes) {
    MemoryEstimate estimate = evaluation_estimate(config, task, costs, longest, shapes);
    estimate.activations = std::max(estimate.activations, training_activations(config, task, costs));
    estimate.gradients = estimate.parameters;
    estimate.optimiser = optimiser_copies(config.optimiser) * estimate.parameters;
    estimate.data = static_cast<double>(task.splits().front().count) * sizeof(std::int64_t);
    return estimate;
  };
  // An encoding may compute tables ahead as it is made. So what does not fit even without one is refused before.
  check_fits(with_costs(plain_costs(config), shapes_without_encoding(config, task)));
  return with_costs(costs_of(config, longest), parameter_shapes(config, task));
}

MemoryEstimate estimate_evaluation(const RunConfig& config, const Task& task, std::int64_t length) {
  check_fits(evaluation_estimate(config, task, plain_costs(config), length, shapes_without_encoding(config, task)));
  return evaluation_estimate(config, task, costs_of(config, task.max_length()), length, parameter_shapes(config, task));
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

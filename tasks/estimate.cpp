// Memory of a training step, from what the operations keep for backward, and of work that goes forward alone. N = B T
// tokens of width D, F the MLP's hidden layer, S = B H T T pairs. A block keeps:
//   8 N D   its input, two norms, q, k, v, merged heads, the residual between attention and MLP
//   2 N F   the MLP's hidden layer before and after its activation (4 N F for SwiGLU)
//   S       where attention is written out: its weights; with a scan also gates and positions; with dropout the weights
//           that were left. In tiles nothing of that size, and with a scan one number per row and tile of keys (128
//           on the CPU, 32 on CUDA devices, which in backward hold as many once more and sums in f64 by row)
// and the rows of tables that join the scores (H N rows), each group of heads by its own encoding. Beyond that one
// block at a time holds intermediate results and gradients.
#include "tasks/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/dtype.hpp"
#include "core/kernels.hpp"
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
  bool gates = false;                             // of a scan that counts positions
  bool own_weights = false;                       // with the softmax beside them, for gradients
  bool written_out = false;                       // own weights, or a whole attention of its own
  double table_rows = 0;                          // read by each query of each head, over all tables
  double row_tables = 0;                          // tables of which it reads a row for each distance
  double dense = 0, own_dense = 0;                // T x T tables for all sequences, and for each of them
  double hidden_units = 0;                        // of a network that reads positions
  double by_distance = 0;                         // biases by distance, of all heads
  double bias_squares = 0;                        // that joining a bias to scores in the open takes for a while
  std::shared_ptr<const Encoding> encoding = {};  // null for none
};
using LayerCosts = std::vector<GroupCosts>;

GroupCosts costs_of(const Encoding& encoding, const AttentionInput& in) {
  GroupCosts costs;
  costs.heads = static_cast<double>(in.q.size(1));
  costs.own_weights = encoding.traits.replaces_softmax;
  costs.written_out = costs.own_weights || encoding.traits.mixes;
  const Score score = score_of(encoding, in);
  costs.scans = score.scan.has_value();
  if (costs.scans) {
    const auto rows_of = [](const Tensor& table) { return static_cast<double>(table.size(-1)); };
    if (const auto* table = std::get_if<ContextualTable>(&*score.scan)) costs.table_rows += rows_of(table->z);
    costs.gates = !std::holds_alternative<StickBreaking>(*score.scan);
    if (const auto* mlp = std::get_if<ContextualMlp>(&*score.scan)) {
      costs.hidden_units = rows_of(mlp->coefficients);
      costs.table_rows += costs.hidden_units;
    }
  }
  for (const Bias& bias : score.biases) {
    // Sums by row and column are in f64 and cast as they join.
    costs.bias_squares = std::max(costs.bias_squares, std::holds_alternative<RowColumn>(bias) ? 3.0 : 1.0);
    // Cut to the sequence, which has one token here.
    if (std::holds_alternative<RowToeplitz>(bias)) costs.row_tables += 1;
    if (std::holds_alternative<Toeplitz>(bias)) costs.by_distance += 1;
    if (const auto* product = std::get_if<Product>(&bias)) {
      // Both factors, beside q and k and joined to them.
      costs.table_rows += 2 * static_cast<double>(in.q.size(3) + 2 * product->query.size(3));
    }
    if (const auto* dense = std::get_if<Dense>(&bias)) {
      (dense->bias.size(0) == 1 ? costs.dense : costs.own_dense) += static_cast<double>(dense->bias.size(1));
    }
  }
  return costs;
}

// Found by asking the encodings about two sequences of one token.
std::vector<LayerCosts> costs_of(const ModelSetting& model) {
  const NoGrad only_asked;
  const Initializer start = without_memory(model.options, model.dtype);
  EncodingSetup setup = EncodingSetup::of(model.options, model.max_length, start);
  setup.constants = std::make_shared<Constants>();  // for a token, not for the longest sequence
  const Tensor x = Tensor::zeros({2, 1, setup.width}, setup.dtype);
  std::vector<LayerCosts> costs;
  for (std::int64_t layer = 0; layer < setup.layers; ++layer) {
    setup.layer = layer;
    costs.emplace_back();
    const auto made = std::make_shared<const LayerEncoding>(model.encoding.make(setup));
    for (const HeadGroup& group : *made) {
      const Tensor q = slice(split_heads(x, setup.heads), 1, 0, group.count);
      costs.back().push_back(costs_of(*group.encoding, {x, q, q, q, 1.0}));
      costs.back().back().encoding = std::shared_ptr<const Encoding>(made, group.encoding.get());
    }
  }
  return costs;
}

// Sizes of one batch, as doubles.
struct Sizes {
  Sizes(const ModelSetting& model, std::int64_t sequences, std::int64_t sequence_length)
      : element(static_cast<double>(size_of(model.dtype))),
        tokens(static_cast<double>(sequences) * static_cast<double>(sequence_length)),
        width(static_cast<double>(model.options.width)),
        hidden(model.options.hidden > 0 ? static_cast<double>(model.options.hidden) : 4 * width),
        vocabulary(static_cast<double>(model.vocabulary)),
        length(static_cast<double>(sequence_length)) {}
  double element, tokens, width, hidden, vocabulary, length;

  // Query and key of so many heads.
  double pairs(double heads) const { return heads * tokens * length; }
};

// Without an encoding.
std::vector<LayerCosts> plain_costs(const ModelOptions& options) {
  GroupCosts all;
  all.heads = static_cast<double>(options.heads);
  return std::vector<LayerCosts>(static_cast<std::size_t>(options.layers), {all});
}

bool is_written_out(const ModelOptions& options, const GroupCosts& group) {
  return group.written_out || options.attention == "composed";
}

KeptNumbers kept_on_the_way(const GroupCosts& group, const Sizes& n) {
  return group.encoding != nullptr ? group.encoding->kept_numbers(static_cast<std::int64_t>(n.length)) : KeptNumbers{};
}

// Numbers of T x T tables that join the scores, and of what they are computed from.
double square_tables(const GroupCosts& group, const Sizes& n) {
  return n.length * n.length * (group.dense + kept_on_the_way(group, n).pair) + n.pairs(group.own_dense);
}

// Rows of tables by distance that are there in a text of this length.
double rows_by_distance(const GroupCosts& group, const Sizes& n) {
  if (group.row_tables == 0) return 0;
  const std::int64_t none = group.encoding->distances_without_row(static_cast<std::int64_t>(n.length));
  return group.row_tables * n.length - static_cast<double>(none);
}

// Numbers that join the scores of a group without being one of its squares.
double table_numbers(const GroupCosts& group, const Sizes& n) {
  return n.tokens * group.heads * (group.table_rows + rows_by_distance(group, n)) + square_tables(group, n);
}

// Running sums that a scan keeps at the edges of its tiles.
double sums_at_edges(double pairs) {
  constexpr std::int64_t length = 4096;
  const auto kept = static_cast<double>(kernels(default_device()).attention_carry(1, length, length));
  return pairs * kept / static_cast<double>(length * length);
}

// Numbers of attention that a layer keeps for backward.
double attention_kept(const ModelOptions& options, const LayerCosts& groups, const Sizes& n) {
  double numbers = 0;
  for (const GroupCosts& group : groups) {
    const double pairs = n.pairs(group.heads);
    numbers += table_numbers(group, n) + n.tokens * kept_on_the_way(group, n).token;
    if (is_written_out(options, group)) {
      numbers += pairs * ((group.scans ? 3 : 1) + (group.own_weights ? 1 : 0) + (options.dropout > 0 ? 1 : 0));
    } else if (group.scans) {
      numbers += sums_at_edges(pairs);
    }
  }
  return numbers;
}

// Numbers that tiled kernels on CUDA devices hold while they go backward. Sums in f64, four a row (of a network's
// positions four for each unit) and one for each distance and 64 rows, count as two.
double backward_scratch(const ModelOptions& options, const GroupCosts& group, const Sizes& n) {
  if (default_device().type == DeviceType::cpu || is_written_out(options, group)) return 0;
  const double rows = n.tokens * group.heads, pairs = n.pairs(group.heads);
  return (group.scans ? sums_at_edges(pairs) + 8 * rows * (1 + group.hidden_units) : 0) +
         2 * group.by_distance * pairs / 64;
}

double training_activations(const ModelOptions& options, const std::vector<LayerCosts>& costs, const Sizes& n) {
  const bool gated = options.activation == "swiglu";
  double kept = 0, largest = 0;
  for (const LayerCosts& layer : costs) {
    const double attention = attention_kept(options, layer, n);
    kept += n.tokens * (8 * n.width + (gated ? 4 : 2) * n.hidden) + attention;
    double gradients = attention;
    for (const GroupCosts& group : layer) {
      // A table's gradient comes for each sequence by itself, then goes on to what the table was computed from.
      const double squares = square_tables(group, n);
      gradients += backward_scratch(options, group, n);
      if (group.own_weights) gradients += 4 * n.pairs(group.heads);  // what they are found with
      if (squares > 0) gradients += n.pairs(group.heads) + squares;
    }
    largest = std::max(largest, gradients);
  }
  return n.element * (kept + largest + n.tokens * (2 * n.hidden + 3 * n.vocabulary + n.width));
}

enum class Traced { no, yes };

// Squares of a group at the moment when there are most of them, forward: scores, what joins them, weights; with gates
// those, positions and, in a trace, a masked copy; of a broken stick the sums of what was taken.
double squares_computed(const GroupCosts& group, Traced traced) {
  if (group.own_weights) return 6;
  const double joined = 2 + group.bias_squares;
  if (!group.scans) return joined;
  if (!group.gates) return std::max(6.0, joined);
  return std::max(traced == Traced::yes ? 5.0 : 4.0, joined);
}

// Forward alone. Where attention is traced it is written out, and its squares stay until the end: weights, and with
// gates in some group those and positions of all heads. Groups are put side by side.
double forward_activations(const ModelOptions& options, const std::vector<LayerCosts>& costs, const Sizes& n,
                           Traced traced) {
  double kept = 0, most = 0;  // most: while a layer is computed, above what others keep
  for (const LayerCosts& layer : costs) {
    double computed = 0;
    bool gates = false;
    for (const GroupCosts& group : layer) {
      computed += table_numbers(group, n);
      if (traced == Traced::yes || is_written_out(options, group)) {
        computed += n.pairs(group.heads) * squares_computed(group, traced);
      }
      gates = gates || group.gates;
    }
    if (traced == Traced::yes) {
      const double squares = n.pairs(static_cast<double>(options.heads)) * (gates ? 3 : 1);
      kept += squares;
      computed = std::max(computed - squares, layer.size() > 1 ? squares : 0);
    }
    most = std::max(most, computed);
  }
  return n.element * (kept + most + n.tokens * (6 * n.width + 2 * n.hidden + 2 * n.vocabulary));
}

NamedShapes parameter_shapes(const ModelSetting& model) {
  return parameter_shapes(model.options, model.encoding, model.vocabulary, model.max_length);
}

MemoryEstimate parameters_of(const ModelSetting& model) {
  const NamedShapes shapes = parameter_shapes(model);
  MemoryEstimate estimate;
  estimate.parameter_count = parameter_count(shapes);
  estimate.encoding_parameter_count = encoding_parameter_count(shapes);
  estimate.parameters = static_cast<double>(estimate.parameter_count) * static_cast<double>(size_of(model.dtype));
  return estimate;
}

// Calls estimate(model, costs). An encoding may compute tables ahead as it is made, so what does not fit even without
// one is refused before.
template <class F>
MemoryEstimate estimate_twice(const ModelSetting& model, F&& estimate) {
  const EncodingChoice none = EncodingChoice::parse("none");
  const ModelSetting plain{model.options, none, model.vocabulary, model.max_length, model.dtype};
  check_fits(estimate(plain, plain_costs(model.options)));
  return estimate(model, costs_of(model));
}

// State tensors of the size of the parameters.
double optimiser_copies(const OptimizerOptions& options) {
  if (options.name == "sgd") return options.momentum > 0 ? 1 : 0;
  return 2;
}

MemoryEstimate step_estimate(const ModelSetting& model, const std::vector<LayerCosts>& costs,
                             const OptimizerOptions& optimiser, const Sizes& n) {
  MemoryEstimate estimate = parameters_of(model);
  estimate.gradients = estimate.parameters;
  estimate.optimiser = optimiser_copies(optimiser) * estimate.parameters;
  estimate.activations = training_activations(model.options, costs, n);
  return estimate;
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
  return parameter_shapes(model_of(config, task));
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

ModelSetting model_of(const RunConfig& config, const Task& task) {
  return {config.model, config.encoding, static_cast<std::int64_t>(task.vocabulary().size()), task.max_length(),
          config.dtype()};
}

std::string attention_form(const ModelSetting& model, std::int64_t layers) {
  bool tiled = false, composed = false;
  std::vector<LayerCosts> costs = costs_of(model);
  costs.resize(static_cast<std::size_t>(layers));
  for (const LayerCosts& layer : costs) {
    for (const GroupCosts& group : layer) (is_written_out(model.options, group) ? composed : tiled) = true;
  }
  return tiled && composed ? "tiled and composed" : composed ? "composed" : "tiled";
}

void check_length(const ModelSetting& model, std::int64_t length) {
  for (const LayerCosts& layer : costs_of(model)) {
    for (const GroupCosts& group : layer) group.encoding->check_length(length);
  }
}

MemoryEstimate estimate_training(const RunConfig& config, const Task& task) {
  return estimate_twice(model_of(config, task), [&](const ModelSetting& model, const std::vector<LayerCosts>& costs) {
    const Split& split = task.splits().front();
    MemoryEstimate estimate =
        step_estimate(model, costs, config.optimiser, Sizes(model, config.run.batch, split.length));
    const Sizes evaluated(model, config.run.eval_batch, model.max_length);
    estimate.activations =
        std::max(estimate.activations, forward_activations(model.options, costs, evaluated, Traced::no));
    estimate.data = static_cast<double>(split.count) * sizeof(std::int64_t);
    return estimate;
  });
}

MemoryEstimate estimate_loading(const RunConfig& config, const Task& task) {
  return estimate_twice(model_of(config, task), [&](const ModelSetting& model, const std::vector<LayerCosts>&) {
    MemoryEstimate estimate = parameters_of(model);
    estimate.checkpoint = (1 + optimiser_copies(config.optimiser)) * estimate.parameters;
    return estimate;
  });
}

MemoryEstimate estimate_evaluation(const RunConfig& config, const Task& task, std::int64_t sequences,
                                   std::int64_t length) {
  return estimate_twice(model_of(config, task), [&](const ModelSetting& model, const std::vector<LayerCosts>& costs) {
    MemoryEstimate estimate = parameters_of(model);
    estimate.activations = forward_activations(model.options, costs, Sizes(model, sequences, length), Traced::no);
    return estimate;
  });
}

MemoryEstimate estimate_trace(const RunConfig& config, const Task& task, std::int64_t sequences, std::int64_t length,
                              bool with_gradients) {
  return estimate_twice(model_of(config, task), [&](const ModelSetting& model, const std::vector<LayerCosts>& costs) {
    const Sizes n(model, sequences, length);
    MemoryEstimate estimate = parameters_of(model);
    estimate.activations = forward_activations(model.options, costs, n, Traced::yes);
    if (with_gradients) {
      estimate.gradients = estimate.parameters;
      estimate.activations = std::max(estimate.activations, training_activations(model.options, costs, n));
    }
    return estimate;
  });
}

MemoryEstimate estimate_step(const ModelSetting& timed, const OptimizerOptions& optimiser, std::int64_t sequences,
                             std::int64_t length) {
  return estimate_twice(timed, [&](const ModelSetting& model, const std::vector<LayerCosts>& costs) {
    return step_estimate(model, costs, optimiser, Sizes(model, sequences, length));
  });
}

MemoryEstimate estimate_attention(const ModelSetting& timed, std::int64_t sequences, std::int64_t length) {
  return estimate_twice(timed, [&](const ModelSetting& model, const std::vector<LayerCosts>& costs) {
    const Sizes n(model, sequences, length);
    MemoryEstimate estimate;
    const LayerCosts& layer = costs.front();
    const double kept = attention_kept(model.options, layer, n);
    const bool in_squares = std::any_of(layer.begin(), layer.end(),
                                        [&](const GroupCosts& group) { return is_written_out(model.options, group); });
    // x; q, k, v and o, the first two also turned, with their gradients; those of what was kept.
    const double back = in_squares ? 2 * n.pairs(static_cast<double>(model.options.heads)) : kept;
    estimate.activations = n.element * (14 * n.tokens * n.width + kept + back);
    return estimate;
  });
}

MemoryEstimate estimate_operations(const ModelSetting& model, std::int64_t sequences, std::int64_t length) {
  const Sizes n(model, sequences, length);
  const double largest = std::max({n.pairs(static_cast<double>(model.options.heads)), n.tokens * n.hidden,
                                   n.tokens * n.vocabulary, n.width * n.hidden, n.width * n.vocabulary});
  MemoryEstimate estimate;
  // An operation's input, its result and the gradients of both; of the interpolation two inputs.
  estimate.activations = n.element * 5 * largest;
  return estimate;
}

}  // namespace tally

// Fused attention with score shapes (autograd/score.hpp); formulas of forward and backward:
// core/cpu/attention/attention.cpp. Saved for backward: the inputs, the output, three softmax statistics a row, and
// with a score modification one running sum per row and key tile.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"
#include "autograd/score.hpp"
#include "core/attention/score_mod_traits.hpp"
#include "core/device/workspace.hpp"

namespace tally {
namespace {

constexpr std::string_view operation_name = "attention";

// The tensors of a call; undefined: absent. All of them, in the order of for_each_operand, are inputs of the graph's
// node.
using Problem = AttentionProblem<Tensor>;

std::vector<Tensor> inputs_of(const Problem& problem) {
  std::vector<Tensor> inputs;
  for_each_operand([&](const auto&, const Tensor& x) { inputs.push_back(x); }, problem);
  return inputs;
}

// --- The problem, with every operand checked ---

// The sizes that letters of OperandRule::shape stand for.
using Sizes = std::map<char, std::int64_t>;

std::string axes_text(std::string_view shape) {
  std::string text;
  for (const char letter : shape) text += formatted("{}{}", text.empty() ? "[" : ", ", letter);
  return text + "]";
}

// Checks the operands that are given. A letter without a size takes it from the first operand that has the letter.
void check_operands(const Problem& problem, Sizes& sizes) {
  const auto check_operand = [&](const OperandRule& rule, const Tensor& x) {
    if (!x.defined()) return;
    check(x.rank() == static_cast<int>(rule.shape.size()), operation_name, "{} must be {}, got {}", rule.name,
          axes_text(rule.shape), x.shape());
    Shape expected;
    for (const char letter : rule.shape) {
      const std::int64_t own = x.size(expected.rank);
      const bool no_keys = sizes.contains('K') && sizes['K'] == 0;
      expected.append(letter == '*' ? std::max<std::int64_t>(own, no_keys ? 0 : 1)
                                    : sizes.try_emplace(letter, own).first->second);
    }
    using Type = OperandRule::Type;
    const bool may_be_bf16 = rule.type == Type::packed || rule.type == Type::matmul;
    const DType dtype = may_be_bf16 && is_matmul_input(x) ? DType::bf16
                        : rule.type == Type::f64          ? DType::f64
                                                          : compute_type(problem.q.dtype());
    check(x.shape() == expected && x.dtype() == dtype, operation_name, "{} must be {} {}, got {} {}", rule.name, dtype,
          expected, x.dtype(), x.shape());
    check_same_device(operation_name, problem.q, x);
  };
  for_each_operand(check_operand, problem);
}

// x, or no tensor if it is not needed.
Tensor needed_operand(bool needed, const Tensor& x) {
  if (!needed) return {};
  check_defined(operation_name, x);
  return x;
}

ScoreModOperands<Tensor> operands_of(const AppliedScoreMod& applied, Sizes& sizes) {
  const ScoreMod& mod = *applied.mod;
  const ScoreModTraits& traits = mod.traits;
  check(traits.gate_logit || !applied.gates.query.defined(), operation_name,
        "the score modification '{}' is given operands of gates, but does not read p.gate_logit", mod.name);
  sizes['r'] = traits.rows;
  sizes['h'] = traits.heads;
  const Tensor table = needed_operand(traits.table, applied.table), knots = needed_operand(traits.knots, applied.knots);
  if (traits.knots) {
    const std::int64_t numbers = table.size(-1);
    check(numbers % 2 == 0, operation_name, "a table between knots has a value and a slope for each, got {} numbers",
          numbers);
    sizes['n'] = numbers / 2;
  }
  return {.mod = &mod,
          .gate_query = applied.gates.query,
          .gate_key = needed_operand(applied.gates.query.defined(), applied.gates.key),
          .rows = needed_operand(traits.rows > 0, applied.rows),
          .heads = needed_operand(traits.heads > 0, applied.heads),
          .table = table,
          .knots = traits.knots ? knots.to_dense() : knots};
}

void add_bias(Problem& x, const Toeplitz& bias, Sizes& sizes) {
  check_defined(operation_name, bias.bias);
  check(bias.bias.rank() == 2 && bias.bias.size(1) >= sizes['K'], operation_name,
        "a toeplitz bias of {} distances does not cover {} tokens", bias.bias.size(-1), sizes['K']);
  x.biases.push_back({BiasKind::toeplitz, false, bias.bias, {}});
}
void add_bias(Problem& x, const RowColumn& bias, Sizes&) {
  x.biases.push_back({BiasKind::row_column, false, bias.row, bias.column});
}
void add_bias(Problem& x, const RowToeplitz& bias, Sizes&) {
  x.biases.push_back({BiasKind::row_toeplitz, bias.cap, needed_operand(true, bias.z), {}});
}
void add_bias(Problem& x, const ToeplitzProduct& bias, Sizes&) {
  x.distance = {bias.cap, needed_operand(true, bias.query), needed_operand(true, bias.key)};
}
void add_bias(Problem&, const Product&, Sizes&) {
  check_internal(false, operation_name, "a product was not joined to that of q and k");
}
void add_bias(Problem& x, const Dense& bias, Sizes& sizes) {
  check_defined(operation_name, bias.bias);
  const Shape pairs{sizes['B'], sizes['H'], sizes['T'], sizes['K']};
  x.biases.push_back({BiasKind::dense, false, broadcast_to(bias.bias, pairs), {}});
}

// An operand that logits have no derivative by is not recorded. It gets no gradient, as in reference attention.
void leave_out_unread(Problem& x) {
  if (x.score_mod.mod == nullptr) return;
  const ScoreModTraits& traits = x.score_mod.mod->traits;
  const auto leave_out = [](bool read, auto&... operands) {
    if (!read) ((operands = operands.detach()), ...);
  };
  const int of_rows = attention::first_scalar_input;
  const auto has_gradient = [&](int first, int count) { return attention::reads(traits.gradients, first, count); };
  const bool has_gates = x.score_mod.gate_query.defined();
  leave_out(has_gradient(attention::input_gate_logit, 1), x.score_mod.gate_query, x.score_mod.gate_key);
  leave_out(has_gradient(of_rows, traits.rows), x.score_mod.rows);
  leave_out(has_gradient(of_rows + traits.rows, traits.heads), x.score_mod.heads);
  leave_out(has_gradient(attention::input_entry, 1), x.score_mod.table);
  if (traits.reaches_scores(has_gates)) return;
  leave_out(false, x.q, x.k);
  if (!traits.after_biases) return;
  // Likewise products and biases that are added to the scores.
  leave_out(false, x.distance.query, x.distance.key);
  for (BiasOperands<Tensor>& bias : x.biases) leave_out(false, bias.values, bias.column);
}

Problem problem_of(const AttentionOperands& in, const Score& score) {
  Problem x;
  x.scale = in.scale;
  x.mask = in.mask;
  x.dropout = in.dropout;
  x.dropout_stream = in.dropout_stream;
  x.q = in.q;
  x.k = in.k;
  x.v = in.v;
  for (const Tensor& own : {x.q, x.k, x.v}) {
    if (!is_matmul_input(own)) check_floating(operation_name, own);
  }
  Sizes sizes;
  check_operands(x, sizes);
  const std::int64_t heads = sizes['H'], key_heads = sizes['G'];
  check(key_heads == heads || (key_heads > 0 && heads % key_heads == 0), operation_name,
        "the {} heads of k do not divide the {} of q", key_heads, heads);
  check(sizes['T'] <= sizes['K'], operation_name,
        "the queries are the last tokens, but there are {} of them for {} keys", sizes['T'], sizes['K']);
  check(in.dropout >= 0 && in.dropout < 1, operation_name, "the dropout rate must be at least 0 and below 1, got {}",
        in.dropout);
  for (const std::int64_t number : {in.mask.window, in.mask.chunk, in.mask.first}) {
    check(number >= 0 && number <= AttentionMask::most, operation_name,
          "window, chunk and first of an attention mask must be from 0 to 2^31 - 1, got {}", number);
  }
  const SoftmaxRule& rule = score.softmax_rule;
  check(!rule.sink.defined() || rule.kind == SoftmaxRule::Kind::softmax, operation_name, "only a softmax takes a sink");
  check(rule.offset == 0 || rule.kind == SoftmaxRule::Kind::sigmoid, operation_name,
        "only sigmoid weights take an offset");

  if (score.score_mod) x.score_mod = operands_of(*score.score_mod, sizes);
  x.softmax_rule = rule;
  for (const Bias& bias : score.biases) std::visit([&](const auto& shape) { add_bias(x, shape, sizes); }, bias);
  check_operands(x, sizes);
  leave_out_unread(x);
  return x;
}

// --- The node of the graph ---

// [B, H, T, e] whose heads are interleaved by token in memory, so that merging them is a view.
Tensor empty_by_token(const Shape& shape, DType dtype, Device device) {
  const Tensor by_token = Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, dtype, device);
  Strides strides = by_token.strides();
  std::swap(strides[1], strides[2]);
  return by_token.detached_strided(shape, strides, by_token.offset());
}

bool is_matmul_operand(const OperandRule& rule, const Tensor& x) {
  return rule.type == OperandRule::Type::matmul && x.defined();
}

// Matmul operands are rounded before forward, so that backward, which saves them rounded, computes the same pairs.
Tensor kernel_operand(const OperandRule& rule, const Tensor& x) {
  return is_matmul_operand(rule, x) ? fused_operand(x) : x;
}
Saved saved_operand(const OperandRule& rule, const Tensor& x) {
  return is_matmul_operand(rule, x) ? save_activation(operation_name, x) : Saved(operation_name, x);
}
View as_view(const OperandRule&, const Tensor& x) { return x.view(); }

// Whether both are one tensor of the graph.
bool is_same(const Tensor& x, const Tensor& y) { return x.autograd() != nullptr && x.autograd() == y.autograd(); }

// The type of an operand's gradient. Gradients of bf16 q, k and v are written in bf16, as the backward of layers reads
// them.
DType gradient_type(const OperandRule& rule, const Tensor& x) {
  return rule.gradient == OperandRule::Gradient::by_token ? x.dtype() : compute_type(x.dtype());
}

// Memory for the gradient of an operand.
Tensor empty_gradient(const OperandRule& rule, const Tensor& x, DType dtype, bool zeros) {
  using Gradient = OperandRule::Gradient;
  if (zeros) return Tensor::zeros(x.shape(), dtype, x.device());
  const bool by_token = rule.gradient == Gradient::by_token || lies_by_token(x);
  Tensor d = by_token ? empty_by_token(x.shape(), dtype, x.device()) : Tensor::empty(x.shape(), dtype, x.device());
  if (rule.gradient == Gradient::partial) d.fill(0);
  return d;
}

// Runs the kernel and records it: o [B, H, T, e] of this precision.
Tensor attend(const Problem& given, OutputPrecision precision) {
  const auto d_types = transformed<DType>(gradient_type, given);
  Problem x = transformed<Tensor>(kernel_operand, given);
  // If the queries of distances are q itself, q's gradient includes theirs.
  const bool distances_of_q = is_same(given.q, given.distance.query);
  if (distances_of_q) x.distance.query = x.q.detach();
  const std::vector<Tensor> inputs = inputs_of(x);
  const DType dtype = compute_type(given.q.dtype());
  const Device device = x.q.device();
  const std::int64_t batch = x.q.size(0), heads = x.q.size(1), queries = x.q.size(2);
  Tensor output = empty_by_token({batch, heads, queries, x.v.size(3)}, output_type(precision, dtype), device);
  const Tensor softmax_statistics = Tensor::empty({batch * heads, queries, statistics_per_row}, dtype, device);
  const Kernels& on = kernels(device);
  AttentionCall call{transformed<View>(as_view, x), output.view(), softmax_statistics.view(), {}};
  Tensor scan_checkpoints;
  if (x.score_mod.mod != nullptr && x.score_mod.mod->traits.sums && needs_grad(inputs)) {
    scan_checkpoints = Tensor::empty({on.attention_prefix_sums(call)}, dtype, device);
    call.scan_checkpoints = scan_checkpoints.view();
  }
  {
    const Workspace workspace(on.attention_workspace(call), device);
    on.attention(call, workspace.data());
  }

  record(operation_name, output, inputs,
         [d_types, distances_of_q, saved = transformed<Saved>(saved_operand, x),
          saved_output = save_activation(operation_name, output), softmax_statistics,
          scan_checkpoints](const Tensor& d_y, Gradients& d) {
           const Problem own = transformed<Tensor>([](const auto&, const Saved& one) { return one.get(); }, saved);
           const AttentionCall again{transformed<View>(as_view, own), saved_output.get().view(),
                                     softmax_statistics.view(), scan_checkpoints.view()};
           std::size_t input = 0;
           const auto wanted_gradient = [&](const OperandRule& rule, const Tensor& one, DType type) {
             const std::size_t own_input = input++;
             if (!d.wants(own_input)) return Tensor();
             const bool whole = rule.gradient == OperandRule::Gradient::by_token && d_y.numel() != 0;
             const Tensor target = whole ? d.take_target(own_input) : Tensor();
             if (target.defined() && target.dtype() == type) return target;
             return empty_gradient(rule, one, type, d_y.numel() == 0);
           };
           const Problem d_own = transformed<Tensor>(wanted_gradient, own, d_types);
           AttentionGradients gradients{transformed<View>(as_view, d_own), d_y.view()};
           if (distances_of_q) gradients.distance.query = gradients.q;
           const Kernels& on_its_device = kernels(d_y.device());
           const Workspace workspace(on_its_device.attention_backward_workspace(again, gradients), d_y.device());
           on_its_device.attention_backward(again, gradients, workspace.data());
           input = 0;
           for (const Tensor& one : inputs_of(d_own)) d.set(input++, one);
         });
  return output;
}

// --- Shapes of the score that become others before the kernel ---

// Checks that x has the heads and tokens of `rows`, with any width.
void check_beside(std::string_view what, const Tensor& x, const Tensor& rows) {
  check_defined(operation_name, x);
  check(x.rank() == 4 && rows.rank() == 4 && x.dtype() == rows.dtype() &&
            Shape{x.size(0), x.size(1), x.size(2), rows.size(3)} == rows.shape(),
        operation_name, "{} must be {} and as {} but for its width, got {} {}", what, rows.dtype(), rows.shape(),
        x.dtype(), x.shape());
}

// Joins additional products to q and k by concatenation, since [q, r].[k, G] is their sum. Gates that read the score
// still read only q.k.
void join_products(AttentionOperands& in, Score& score) {
  const Tensor q = in.q, k = in.k;
  for (const Bias& bias : score.biases) {
    const auto* product = std::get_if<Product>(&bias);
    if (product == nullptr) continue;
    check_beside("the query of a product", product->query, q);
    check_beside("the key of a product", product->key, k);
    in.q = concat({in.q, product->query}, 3);
    in.k = concat({in.k, product->key}, 3);
  }
  const auto is_product = [](const Bias& bias) { return std::holds_alternative<Product>(bias); };
  const bool joined = std::erase_if(score.biases, is_product) != 0;
  if (joined && score.score_mod && score.score_mod->mod->traits.gate_logit && !score.score_mod->gates.query.defined()) {
    score.score_mod->gates = {q, k};
  }
}

// Leaves one product by distance to the kernel of the CPU, if its keys have one head or k's heads, and computes others
// before. With few queries, as in generation, a separate matmul is faster.
void take_products_of_rows(const AttentionOperands& in, Score& score) {
  constexpr std::int64_t enough = 32;
  bool taken = !is_cpu(in.q.device()) || in.q.size(2) < std::min(enough, in.k.size(2));
  for (Bias& bias : score.biases) {
    auto* const product = std::get_if<ToeplitzProduct>(&bias);
    if (product == nullptr) continue;
    check_products_of_rows(operation_name, product->query, product->key);
    const Shape& key = product->key.shape();
    const std::int64_t batch = in.k.size(0), heads = in.k.size(1), count = std::min(key[2], in.k.size(2));
    if (taken || (key[0] != 1 && key[0] != batch) || (key[1] != 1 && key[1] != heads)) {
      bias = product->materialised(in.scale);
    } else {
      product->key = broadcast_to(slice(product->key, 2, 0, count), {batch, heads, count, key[3]});
      taken = true;
    }
  }
}

}  // namespace

Tensor tiled_attention(const AttentionOperands& given, const Score& given_score) {
  const ProfileScope scope(operation_name);
  AttentionOperands in = given;
  Score score = given_score;
  check(score.tiled_on(in.q.device()), operation_name,
        "fused attention on {} does not support this combination of score modifications, products and factors",
        to_text(in.q.device()));
  if (score.factor != 1) in.q = to_f32(in.q) * score.factor;  // only q.k has the factor; other products do not
  if (score.row_factor.defined()) in.q = in.q * unsqueeze(score.row_factor, 3);
  join_products(in, score);
  take_products_of_rows(in, score);
  return attend(problem_of(in, score), in.precision);
}

}  // namespace tally

// Fused attention with score shapes (autograd/score.hpp); formulas of forward and backward:
// core/cpu/attention/attention.cpp. Saved for backward: the inputs, the output, three softmax statistics a row, and
// with a scan one running sum per row and key tile.
#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/attention_call.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/profile.hpp"
#include "autograd/score.hpp"
#include "core/device/workspace.hpp"

namespace tally {

using attention_call::by_query_head;
using attention_call::empty_by_token;
using attention_call::operation_name;
using attention_call::Problem;

Tensor attention_call::by_query_head(const Tensor& x, std::int64_t heads) {
  const std::int64_t before = x.size(1);
  if (heads == before || before == 0) return x;
  const Shape each{x.size(0), before, heads / before, x.size(2), x.size(3)};
  const Tensor one_more = reshape(x, {each[0], before, 1, each[3], each[4]});
  return reshape(broadcast_to(one_more, each), {each[0], heads, each[3], each[4]});
}

Tensor attention_call::empty_by_token(const Shape& shape, DType dtype, Device device) {
  const Tensor by_token = Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, dtype, device);
  Strides strides = by_token.strides();
  std::swap(strides[1], strides[2]);
  return by_token.as_strided(shape, strides, by_token.offset());
}

namespace {

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
Tensor as_read(const Saved& kept) {
  return kept.get().defined() && !is_cpu(kept.get().device()) ? to_f32(kept.get()) : kept.get();
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

// Checks that x has the heads and tokens of `rows`, with any width.
void check_beside(std::string_view what, const Tensor& x, const Tensor& rows) {
  check_defined(operation_name, x);
  check(x.rank() == 4 && rows.rank() == 4 && x.dtype() == rows.dtype() &&
            Shape{x.size(0), x.size(1), x.size(2), rows.size(3)} == rows.shape(),
        operation_name, what, " must be ", rows.dtype(), " and as ", rows.shape(), " but for its width, got ",
        x.dtype(), " ", x.shape());
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
  if (std::erase_if(score.biases, is_product) != 0) score.keep_gates(q, k);
}

// Whether the kernel can compute the products of queries r and keys e [1 or B, heads, N, w]; each row reads some of
// them. It needs a kernel that supports them, whole texts, enough queries, and one head or k's heads. Broadcasts `key`
// to every sequence and head of keys.
bool is_made_in_tiles(const AttentionOperands& in, const Tensor& query, Tensor& key) {
  constexpr std::int64_t enough = 32;  // with fewer queries, as in generation, a separate matmul is faster
  check_products_of_rows(operation_name, query, key);
  check(in.q.rank() == 4 && in.k.rank() == 4, operation_name, "q and k must be [B, H, tokens, width], got ",
        in.q.shape(), " and ", in.k.shape());
  const std::int64_t heads = in.k.size(1), queries = in.q.size(2);
  const bool few = queries < enough && queries < in.k.size(2);
  const bool for_keys = (key.size(0) == 1 || key.size(0) == in.k.size(0)) && (key.size(1) == 1 || key.size(1) == heads);
  if (!is_cpu(in.q.device()) || few || !for_keys) return false;
  key = broadcast_to(key, {in.k.size(0), heads, key.size(2), key.size(3)});
  return true;
}
// Computes such products before the kernel unless the kernel can; it supports one product by distance. Keys that no row
// reads are dropped.
void take_products_of_rows(const AttentionOperands& in, Score& score) {
  const auto first_rows = [](const Tensor& key, std::int64_t count) {
    return slice(key, 2, 0, std::min(key.size(2), count));
  };
  bool taken = false;
  for (Bias& bias : score.biases) {
    auto* const product = std::get_if<ToeplitzProduct>(&bias);
    if (product == nullptr) continue;
    ToeplitzProduct in_tiles = *product;
    if (!taken && is_made_in_tiles(in, in_tiles.query, in_tiles.key)) {
      const bool windowed = in.mask.window > 0 && in.mask.first == 0;
      in_tiles.key = first_rows(in_tiles.key, windowed ? std::min(in.mask.window, in.k.size(2)) : in.k.size(2));
      bias = in_tiles;
      taken = true;
    } else {
      bias = product->materialised(in.scale);
    }
  }
}

// Replaces q and k by the queries and keys of the MovedProduct. Its keys may have one head for each query head. Values
// and other key operands are then repeated likewise.
void take_moved(AttentionOperands& in, Score& score) {
  MovedProduct& moved = *score.moved;
  const auto check_as = [&](std::string_view what, const Tensor& x, const Tensor& like, std::int64_t heads) {
    check_defined(operation_name, x);
    check(x.rank() == 4 && like.rank() == 4 && x.dtype() == like.dtype() && x.size(1) == heads &&
              Shape{x.size(0), like.size(1), x.size(2), x.size(3)} == like.shape(),
          operation_name, what, " must be ", like.dtype(), " and as ", like.shape(), ", got ", x.dtype(), " ",
          x.shape());
  };
  check_as("the queries that move", moved.queries, in.q, in.q.size(1));
  const bool each_its_own = moved.keys.defined() && moved.keys.rank() == 4 && moved.keys.size(1) == in.q.size(1);
  check_as("the keys that queries move to", moved.keys, in.k, each_its_own ? in.q.size(1) : in.k.size(1));
  score.keep_gates(in.q, in.k);
  const std::int64_t heads = moved.keys.size(1), before = in.k.size(1);
  in.q = score.factor == 1 ? moved.queries : moved.queries * score.factor;
  if (score.factor != 1) moved.own = moved.own * score.factor;
  in.k = moved.keys;
  if (heads == before) return;
  const auto for_heads = [&](Tensor& x) {
    if (x.defined() && x.rank() == 4 && x.size(1) == before) x = by_query_head(x, heads);
  };
  for_heads(in.v);
  for (Bias& bias : score.biases) {
    if (auto* const product = std::get_if<Product>(&bias)) for_heads(product->key);
  }
  if (score.scan) {
    for_heads(score.scan->gates.key);
  }
}

}  // namespace

Tensor tiled_attention(const AttentionOperands& given, const Score& given_score) {
  const ProfileScope scope(operation_name);
  AttentionOperands in = given;
  Score score = given_score;
  score.check_tiled();
  if (score.factor != 1) in.q = to_f32(in.q) * score.factor;  // only q.k has the factor; other products do not
  multiply_rows(in, score);
  if (score.moved) take_moved(in, score);
  join_products(in, score);
  take_products_of_rows(in, score);
  const Problem problem = attention_call::problem_of(in, score);
  return score.moved ? attention_call::attend_in_parts(problem, in.products_at_once)
                     : attention_call::attend(problem, in.precision);
}

Tensor attention_call::attend(const Problem& given, OutputPrecision precision) {
  const auto d_types = transformed<DType>(gradient_type, given);
  Problem x = transformed<Tensor>(kernel_operand, given);
  // If the queries of distances are q itself, q's gradient includes theirs.
  const bool distances_of_q = is_same(given.q, given.distance.query);
  if (distances_of_q) x.distance.query = x.q.detach();
  const std::vector<Tensor> inputs = inputs_of(x);
  const DType dtype = compute_type(given.q.dtype());
  const Device device = x.q.device();
  const std::int64_t batch = x.q.size(0), heads = x.q.size(1), queries = x.q.size(2);
  const DType output_dtype = is_cpu(device) ? output_type(precision, dtype) : dtype;
  Tensor output = empty_by_token({batch, heads, queries, x.v.size(3)}, output_dtype, device);
  const Tensor softmax_statistics = Tensor::empty({batch * heads, queries, statistics_per_row}, dtype, device);
  const Kernels& on = kernels(device);
  AttentionCall call{transformed<View>(as_view, x), output.view(), softmax_statistics.view(), {}};
  Tensor scan_checkpoints;
  if (x.scan.mod != nullptr && x.scan.mod->traits.sums && needs_grad(inputs)) {
    scan_checkpoints = Tensor::empty({on.attention_prefix_sums(call)}, dtype, device);
    call.scan_checkpoints = scan_checkpoints.view();
  }
  {
    const Workspace workspace(on.attention_workspace(call), device);
    on.attention(call, workspace.data());
  }

  record(operation_name, output, inputs,
         [d_types, distances_of_q, kept = transformed<Saved>(saved_operand, x),
          kept_output = save_activation(operation_name, output), softmax_statistics,
          scan_checkpoints](const Tensor& d_y, Gradients& d) {
           const Problem own = transformed<Tensor>([](const auto&, const Saved& one) { return as_read(one); }, kept);
           const Tensor own_output = as_read(kept_output);
           const AttentionCall again{transformed<View>(as_view, own), own_output.view(), softmax_statistics.view(),
                                     scan_checkpoints.view()};
           std::size_t input = 0;
           const auto wanted_gradient = [&](const OperandRule& rule, const Tensor& one, DType type) {
             return d.wants(input++) ? empty_gradient(rule, one, type, d_y.numel() == 0) : Tensor();
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

}  // namespace tally

// Fused attention with score shapes (autograd/score.hpp); formulas of forward and backward:
// core/cpu/attention/attention.cpp. Saved for backward: the inputs, the output, three softmax statistics a row, and
// with a scan one running sum per row and key tile.
#include <algorithm>
#include <iterator>
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

using attention_call::Builder;
using attention_call::by_query_head;
using attention_call::empty_by_token;
using attention_call::for_each_slot;
using attention_call::Layout;
using attention_call::operation_name;
using attention_call::Slot;

Tensor attention_call::empty_by_token(const Shape& shape, DType dtype, Device device) {
  const Tensor by_token = Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, dtype, device);
  Strides strides = by_token.strides();
  std::swap(strides[1], strides[2]);
  return by_token.as_strided(shape, strides, by_token.offset());
}

namespace {

// Whether input n is a matmul operand of the scores or the output. Such inputs are rounded before forward, so that
// backward, which saves them rounded, computes the same pairs.
bool is_matmul_operand(const Layout& layout, int n) {
  const AttentionOperandsOf<Slot>& slots = layout.slots;
  const int operands[] = {slots.q.index,
                          slots.k.index,
                          slots.v.index,
                          slots.scan.gate_query.index,
                          slots.scan.gate_key.index,
                          slots.distance.query.index,
                          slots.distance.key.index};
  return std::find(std::begin(operands), std::end(operands), n) != std::end(operands);
}

Tensor as_read(const Saved& kept) {
  return kept.get().defined() && !is_cpu(kept.get().device()) ? to_f32(kept.get()) : kept.get();
}

// Whether both are one tensor of the graph.
bool is_same(const Tensor& x, const Tensor& y) { return x.autograd() != nullptr && x.autograd() == y.autograd(); }

// Types of a call's gradients. Gradients of bf16 q, k and v are written in bf16, as the backward of layers reads them.
// If the queries of distances are q itself, q's gradient includes theirs.
struct GradientForms {
  GradientForms(const Layout& layout, const std::vector<Tensor>& given) {
    const auto at = [&](const Slot& slot) { return given[static_cast<std::size_t>(slot.index)]; };
    const auto is_rounded = [&](const Slot& slot) { return at(slot).dtype() == DType::bf16; };
    const auto is_q = [&](const Slot& slot) { return slot.index >= 0 && is_same(at(layout.slots.q), at(slot)); };
    q = is_rounded(layout.slots.q);
    k = is_rounded(layout.slots.k);
    v = is_rounded(layout.slots.v);
    distances_of_q = is_q(layout.slots.distance.query);
  }
  bool q, k, v;
  bool distances_of_q;
};

// Gradients of a call's inputs. Those that a kernel may leave untouched begin at 0.
class InputGradients {
 public:
  InputGradients(const Layout& layout, const GradientForms& forms, const Gradients& wanted,
                 const std::vector<Saved>& inputs, const Tensor& d_output)
      : gradients_(inputs.size()), biases_(layout.biases.size()) {
    const int last_by_token = layout.slots.v.index;
    const auto is_rounded = [&](std::size_t n) {
      const auto index = static_cast<int>(n);
      return (forms.q && index == layout.slots.q.index) || (forms.k && index == layout.slots.k.index) ||
             (forms.v && index == layout.slots.v.index);
    };
    for (std::size_t n = 0; n < inputs.size(); ++n) {
      if (!wanted.wants(n)) continue;
      const Tensor& x = inputs[n].get();
      const bool by_token = static_cast<int>(n) <= last_by_token || lies_by_token(x);
      const DType dtype = is_rounded(n) ? DType::bf16 : compute_type(x.dtype());
      gradients_[n] = d_output.numel() == 0 ? Tensor::zeros(x.shape(), dtype, x.device())
                      : by_token            ? empty_by_token(x.shape(), dtype, x.device())
                                            : Tensor::empty(x.shape(), dtype, x.device());
    }
    for_each_slot(layout, views_, biases_, [&](const Slot& slot, View& view) {
      if (slot.index >= 0 && of(slot).defined()) view = of(slot).view();
    });
    if (forms.distances_of_q) views_.distance.query = views_.q;
    for (std::size_t n = 0; n < biases_.size(); ++n) {
      const AttentionBias::Kind kind = layout.biases[n].kind;
      const bool partly = kind == AttentionBias::Kind::toeplitz || kind == AttentionBias::Kind::dense;
      if (partly && biases_[n].values) of(layout.bias_slots[n].values).fill(0);
    }
    views_.d_output = d_output.view();
    views_.biases = biases_.data();
  }

  const AttentionGradients& views() const { return views_; }
  void give(Gradients& d) {
    for (std::size_t n = 0; n < gradients_.size(); ++n) {
      if (gradients_[n].defined()) d.set(n, std::move(gradients_[n]));
    }
  }

 private:
  Tensor& of(const Slot& slot) { return gradients_[static_cast<std::size_t>(slot.index)]; }

  std::vector<Tensor> gradients_;
  std::vector<BiasOperands<View>> biases_;
  AttentionGradients views_;
};

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
  const Builder builder(in, score);
  if (score.moved) return attention_call::attend_in_parts(builder.layout, builder.inputs, in.products_at_once);
  return attention_call::attend(builder.layout, builder.inputs);
}

Tensor attention_call::attend(const Layout& layout, const std::vector<Tensor>& given) {
  const auto products_read = [&layout](std::size_t n) { return is_matmul_operand(layout, static_cast<int>(n)); };
  const GradientForms forms(layout, given);
  std::vector<Tensor> inputs;
  for (std::size_t n = 0; n < given.size(); ++n) {
    inputs.push_back(products_read(n) ? fused_operand(given[n]) : given[n]);
  }
  const auto input = [&](const Slot& slot) -> Tensor& { return inputs[static_cast<std::size_t>(slot.index)]; };
  if (forms.distances_of_q) input(layout.slots.distance.query) = input(layout.slots.q).detach();
  const Tensor q = input(layout.slots.q), k = input(layout.slots.k), v = input(layout.slots.v);
  const DType dtype = compute_type(given[static_cast<std::size_t>(layout.slots.q.index)].dtype());
  const Device device = q.device();
  const std::int64_t heads = q.size(0) * q.size(1);
  const DType output_dtype = is_cpu(device) ? output_type(layout.precision, dtype) : dtype;
  Tensor output = empty_by_token({q.size(0), q.size(1), q.size(2), v.size(3)}, output_dtype, device);
  const Tensor softmax_statistics = Tensor::empty({heads, q.size(2), statistics_per_row}, dtype, device);
  const Kernels& on = kernels(device);
  Call forward(layout, output, softmax_statistics, {}, [&](std::size_t n) { return inputs[n].view(); });
  Tensor scan_checkpoints;
  if (sums_along_keys(layout) && needs_grad(inputs)) {
    scan_checkpoints = Tensor::empty({on.attention_prefix_sums(forward.call)}, dtype, device);
    forward.call.scan_checkpoints = scan_checkpoints.view();
  }
  {
    const Workspace workspace(on.attention_workspace(forward.call), device);
    on.attention(forward.call, workspace.data());
  }

  std::vector<Saved> kept;
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    kept.push_back(products_read(n) ? save_activation(operation_name, inputs[n]) : Saved(operation_name, inputs[n]));
  }
  record(operation_name, output, inputs,
         [layout, forms, kept, kept_output = save_activation(operation_name, output), softmax_statistics,
          scan_checkpoints](const Tensor& d_y, Gradients& d) {
           InputGradients gradients(layout, forms, d, kept, d_y);
           std::vector<Tensor> read;
           for (const Saved& one : kept) read.push_back(as_read(one));
           const Tensor own_output = as_read(kept_output);
           const Call call(layout, own_output, softmax_statistics, scan_checkpoints,
                           [&](std::size_t n) { return read[n].view(); });
           const Kernels& on_its_device = kernels(d_y.device());
           const Workspace workspace(on_its_device.attention_backward_workspace(call.call, gradients.views()),
                                     d_y.device());
           on_its_device.attention_backward(call.call, gradients.views(), workspace.data());
           gradients.give(d);
         });
  return output;
}

}  // namespace tally

// The checked parts of one call of fused attention: a list of operands for the graph, the role of each, and the views
// for a kernel. Only for autograd/ops/attention.cpp and attention_parts.cpp.
#pragma once

#include <algorithm>
#include <string_view>
#include <variant>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/score.hpp"
#include "core/attention/score_mod_traits.hpp"
#include "core/device/backend.hpp"

namespace tally::attention_call {

inline constexpr std::string_view operation_name = "attention";

// Index of an operand in the list of inputs; -1: absent.
struct Slot {
  int index = -1;
};

// The operands of a MovedProduct except its queries and keys, which replace q and k. Kernels do not take them.
template <class X>
struct MoveOperands {
  X own{}, read{}, taken{}, factor{};
};

// A call without its tensors, and the role of each input.
struct Layout {
  AttentionCall call;
  AttentionOperandsOf<Slot> slots;
  MoveOperands<Slot> moves;
  std::vector<AttentionBias> biases;
  std::vector<BiasOperands<Slot>> bias_slots;
  OutputPrecision precision = OutputPrecision::full;  // of the output
};

// Whether a sum runs along the keys.
inline bool sums_along_keys(const Layout& layout) {
  const ScoreMod* const mod = layout.call.scan.mod;
  return mod != nullptr && mod->traits.sums;
}

// f(slot, view) for every possible operand, with its view in `operands` or `biases`.
template <class F, class Operands, class Biases>
void for_each_slot(const Layout& layout, Operands& operands, Biases& biases, const F& f) {
  for_each_operand(f, layout.slots, operands);
  for (std::size_t n = 0; n < layout.bias_slots.size(); ++n) {
    f(layout.bias_slots[n].values, biases[n].values);
    f(layout.bias_slots[n].column, biases[n].column);
  }
}

// [B, G, N, w] with one head for each query head: each is repeated for the query heads that share it.
inline Tensor by_query_head(const Tensor& x, std::int64_t heads) {
  const std::int64_t before = x.size(1);
  if (heads == before || before == 0) return x;
  const Shape each{x.size(0), before, heads / before, x.size(2), x.size(3)};
  const Tensor one_more = reshape(x, {each[0], before, 1, each[3], each[4]});
  return reshape(broadcast_to(one_more, each), {each[0], heads, each[3], each[4]});
}

// Runs the kernel on these inputs and records it: o [B, H, T, e].
Tensor attend(const Layout& layout, const std::vector<Tensor>& inputs);
// The same with a MovedProduct (autograd/ops/attention_parts.cpp). `at_once`: approximate number of products of queries
// and keys in memory at a time.
Tensor attend_in_parts(const Layout& layout, const std::vector<Tensor>& inputs, std::int64_t at_once);

// [B, H, T, e] whose heads are interleaved by token in memory, so that merging them is a view.
Tensor empty_by_token(const Shape& shape, DType dtype, Device device);

// A call with its tensors, for a kernel.
struct Call {
  AttentionCall call;
  std::vector<AttentionBias> biases;

  // at(n): the view of input n.
  template <class At>
  Call(const Layout& layout, const Tensor& output, const Tensor& softmax_statistics, const Tensor& scan_checkpoints,
       At&& at)
      : call(layout.call), biases(layout.biases) {
    for_each_slot(layout, call, biases, [&](const Slot& slot, View& view) {
      if (slot.index >= 0) view = at(static_cast<std::size_t>(slot.index));
    });
    call.biases = biases.data();
    call.bias_count = static_cast<int>(biases.size());
    call.output = output.view();
    call.softmax_statistics = softmax_statistics.view();
    if (scan_checkpoints.defined()) call.scan_checkpoints = scan_checkpoints.view();
  }
};

// Lists the operands and checks each against the sizes of q and k.
class Builder {
 public:
  Builder(const AttentionOperands& in, const Score& score) : in_(in) {
    check_heads("q", in.q);
    check_heads("k", in.k);
    check_heads("v", in.v);
    batch_ = in.q.size(0);
    heads_ = in.q.size(1);
    queries_ = in.q.size(2);
    key_heads_ = in.k.size(1);
    keys_ = in.k.size(2);
    check(in.k.shape() == Shape{batch_, key_heads_, keys_, in.q.size(3)}, operation_name,
          "q [B, H, T, d] and k [B, G, K, d] differ in more than their heads and lengths: got ", in.q.shape(), " and ",
          in.k.shape());
    check(key_heads_ == heads_ || (key_heads_ > 0 && heads_ % key_heads_ == 0), operation_name, "the ", key_heads_,
          " heads of k do not divide the ", heads_, " of q");
    check(in.v.shape() == Shape{batch_, key_heads_, keys_, in.v.size(3)}, operation_name,
          "k [B, G, K, d] and v [B, G, K, e] do not belong together: got ", in.k.shape(), " and ", in.v.shape());
    check(queries_ <= keys_, operation_name, "the queries are the last tokens, but there are ", queries_,
          " of them for ", keys_, " keys");
    check(in.dropout >= 0 && in.dropout < 1, operation_name, "the dropout rate must be at least 0 and below 1, got ",
          in.dropout);
    layout.call.scale = in.scale;
    layout.call.dropout = in.dropout;
    layout.call.dropout_stream = in.dropout_stream;
    for (const std::int64_t number : {in.mask.window, in.mask.chunk, in.mask.first}) {
      check(number >= 0 && number <= AttentionMask::most, operation_name,
            "window, chunk and first of what a query sees are from 0 to 2^31 - 1, got ", number);
    }
    layout.call.mask = in.mask;
    layout.precision = in.precision;
    layout.slots.q = add(in.q);
    layout.slots.k = add(in.k);
    layout.slots.v = add(in.v);
    if (score.moved) add_moved(*score.moved);
    if (score.scan) add_scan(*score.scan);
    for (const Bias& bias : score.biases) std::visit([&](const auto& shape) { add_bias(shape); }, bias);
    add_normaliser(score.softmax_rule);
    leave_out_unread();
  }

  Layout layout;
  std::vector<Tensor> inputs;

 private:
  static bool is_operand(const Tensor& x) { return is_matmul_input(x) && is_cpu(x.device()); }
  static void check_heads(std::string_view what, const Tensor& x) {
    if (!is_operand(x)) check_floating(operation_name, x);
    check(x.rank() == 4, operation_name, what, " must be [B, H, tokens, width], got ", x.shape());
  }
  Slot add(const Tensor& x) {
    inputs.push_back(x);
    return {static_cast<int>(inputs.size()) - 1};
  }
  Slot add(std::string_view what, const Tensor& x, const Shape& shape, DType dtype) {
    check_defined(operation_name, x);
    check(x.shape() == shape && x.dtype() == dtype, operation_name, what, " must be ", dtype, " ", shape, ", got ",
          x.dtype(), " ", x.shape());
    check_same_device(operation_name, in_.q, x);
    return add(x);
  }
  Slot add(std::string_view what, const Tensor& x, const Shape& shape) {
    return add(what, x, shape, compute_type(in_.q.dtype()));
  }
  // A matmul operand, or one that is packed like it; may be bf16.
  Slot add_operand(std::string_view what, const Tensor& x, const Shape& shape) {
    return is_operand(x) ? add(what, x, shape, DType::bf16) : add(what, x, shape);
  }
  // The last axis may have any size above 0.
  Slot add_rows(std::string_view what, const Tensor& x) {
    check_defined(operation_name, x);
    check(x.rank() == 4 && x.size(3) > 0, operation_name, what, " must be [B, H, T, entries], got ", x.shape());
    return add(what, x, {batch_, heads_, queries_, x.size(3)});
  }

  // Its queries and keys are already the first channels of q and k, before the channels that do not move.
  void add_moved(const MovedProduct& moved) {
    check(queries_ == keys_, operation_name, "queries that move are those of all keys, but there are ", queries_,
          " for ", keys_, " keys");
    const std::int64_t block = std::min(keys_, moved_block), blocks = block == 0 ? 0 : (keys_ + block - 1) / block;
    MoveOperands<Slot>& slots = layout.moves;
    slots.own = add("the products in blocks", moved.own, {batch_, heads_, queries_, block});
    const std::int64_t width = moved.queries.size(3);
    if (moved.factor.defined()) {
      slots.factor = add("the factors of blocks", moved.factor, {batch_, key_heads_, blocks, width});
      return;
    }
    slots.read = add("what blocks read of queries", moved.read, {batch_, key_heads_, keys_, width});
    slots.taken = add("what blocks take off queries", moved.taken, {batch_, key_heads_, keys_, width});
  }
  void add_gates(const Gates& gates) {
    if (!gates.query.defined()) return;
    check_heads("the query of the gates", gates.query);
    layout.slots.scan.gate_query =
        add_operand("the query of the gates", gates.query, {batch_, heads_, queries_, gates.query.size(3)});
    layout.slots.scan.gate_key =
        add_operand("the key of the gates", gates.key, {batch_, key_heads_, keys_, gates.query.size(3)});
  }
  void add_scan(const AppliedScoreMod& scan) {
    const ScoreMod& mod = *scan.mod;
    check(mod.traits.gate_logit || !scan.gates.query.defined(), operation_name, "the score modification '", mod.name,
          "' is given operands of gates, but does not read p.gate_logit");
    layout.call.scan.mod = &mod;
    ScoreModOperands<Slot>& own = layout.slots.scan;
    if (mod.traits.rows > 0) {
      own.rows = add("the scalars of rows", scan.rows, {batch_, heads_, queries_, mod.traits.rows});
    }
    if (mod.traits.table) own.table = add_rows("the table of positions", scan.table);
    if (mod.traits.knots) {
      const std::int64_t entries = scan.table.size(3);
      check(entries % 2 == 0, operation_name, "a table between knots has a value and a slope for each, got ", entries,
            " numbers");
      check_defined(operation_name, scan.knots);
      own.knots = add("the knots", scan.knots.to_dense(), {entries / 2});
    }
    if (mod.traits.heads > 0) own.heads = add("the scalars of heads", scan.heads, {heads_, mod.traits.heads});
    check(is_compiled(mod, in_.q.device()), operation_name, "the score modification '", mod.name,
          "' is not compiled for ", to_text(in_.q.device()), ": composed attention has it there");
    add_gates(scan.gates);
  }
  // An operand that logits have no derivative by is not recorded. It gets no gradient, as in reference attention.
  void leave_out_unread() {
    const AttentionOperandsOf<Slot>& all = layout.slots;
    const auto unless = [&](bool read, const Slot& slot) {
      if (read || slot.index < 0) return;
      Tensor& x = inputs[static_cast<std::size_t>(slot.index)];
      x = x.detach();
    };
    const ScoreMod* const mod = layout.call.scan.mod;
    if (mod == nullptr) return;
    const ScoreModTraits& traits = mod->traits;
    const ScoreModOperands<Slot>& own = all.scan;
    const auto has_gradient = [&](int first, int count) { return attention::reads(traits.gradients, first, count); };
    const int of_rows = attention::first_scalar_input;
    unless(has_gradient(attention::input_gate_logit, 1), own.gate_query);
    unless(has_gradient(attention::input_gate_logit, 1), own.gate_key);
    unless(has_gradient(of_rows, traits.rows), own.rows);
    unless(has_gradient(of_rows + traits.rows, traits.heads), own.heads);
    unless(has_gradient(attention::input_entry, 1), own.table);
    if (traits.reaches_scores(own.gate_query.index >= 0)) return;
    const MoveOperands<Slot>& moves = layout.moves;
    for (const Slot& slot : {all.q, all.k, moves.own, moves.read, moves.taken, moves.factor}) unless(false, slot);
    if (!traits.after_biases) return;
    // Likewise products and biases that are added to the scores.
    unless(false, all.distance.query);
    unless(false, all.distance.key);
    for (const BiasOperands<Slot>& bias : layout.bias_slots) {
      unless(false, bias.values);
      unless(false, bias.column);
    }
  }
  void add_normaliser(const SoftmaxRule& softmax_rule) {
    using Kind = SoftmaxRule::Kind;
    check(!softmax_rule.sink.defined() || softmax_rule.kind == Kind::softmax, operation_name,
          "a sink is of a softmax alone");
    check(softmax_rule.offset == 0 || softmax_rule.kind == Kind::sigmoid, operation_name,
          "an offset is of sigmoid weights alone");
    layout.call.softmax_rule.kind = softmax_rule.kind;
    layout.call.softmax_rule.offset = softmax_rule.offset;
    NormaliserOperands<Slot>& slots = layout.slots.softmax_rule;
    if (softmax_rule.sink.defined()) slots.sink = add("the sink", softmax_rule.sink, {heads_});
    if (softmax_rule.rest.defined()) {
      slots.rest = add_operand("the rest", softmax_rule.rest, {batch_, heads_, queries_, in_.v.size(3)});
    }
  }

  void add_bias(AttentionBias::Kind kind, BiasOperands<Slot> slots, bool cap = false) {
    layout.biases.push_back({{}, kind, cap});
    layout.bias_slots.push_back(slots);
  }
  void add_bias(const Toeplitz& bias) {
    check_defined(operation_name, bias.bias);
    check(bias.bias.rank() == 2 && bias.bias.size(1) >= keys_, operation_name, "a toeplitz bias of ",
          bias.bias.size(-1), " distances does not cover ", keys_, " tokens");
    add_bias(AttentionBias::Kind::toeplitz, {.values = add("a toeplitz bias", bias.bias, {heads_, bias.bias.size(1)})});
  }
  void add_bias(const RowColumn& bias) {
    BiasOperands<Slot> own;
    if (bias.row.defined()) own.values = add("a row bias", bias.row, {batch_, heads_, queries_}, DType::f64);
    if (bias.column.defined()) own.column = add("a column bias", bias.column, {batch_, heads_, keys_}, DType::f64);
    add_bias(AttentionBias::Kind::row_column, own);
  }
  void add_bias(const RowToeplitz& bias) {
    add_bias(AttentionBias::Kind::row_toeplitz, {.values = add_rows("a bias of rows by distance", bias.z)}, bias.cap);
  }
  void add_bias(const ToeplitzProduct& bias) {
    layout.call.distance.cap = bias.cap;
    layout.slots.distance.query =
        add_operand("the query of a product by distance", bias.query, {batch_, heads_, queries_, bias.query.size(3)});
    layout.slots.distance.key = add_operand("the key of a product by distance", bias.key,
                                            {batch_, key_heads_, bias.key.size(2), bias.query.size(3)});
  }
  void add_bias(const Product&) {
    check_internal(false, operation_name, "a product was not joined to that of q and k");
  }
  void add_bias(const Dense& bias) {
    check_defined(operation_name, bias.bias);
    const Shape shape{batch_, heads_, queries_, keys_};
    add_bias(AttentionBias::Kind::dense, {.values = add("a dense bias", broadcast_to(bias.bias, shape), shape)});
  }

  const AttentionOperands& in_;
  std::int64_t batch_ = 0, heads_ = 0, key_heads_ = 0, queries_ = 0, keys_ = 0;
};

}  // namespace tally::attention_call

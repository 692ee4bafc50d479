// What one call of tiled attention is made of, checked: operands in a list for the graph, which of them is what, and
// the views for a kernel. Only for autograd/ops/attention.cpp.
#pragma once

#include <algorithm>
#include <string_view>
#include <variant>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/ops/check.hpp"
#include "autograd/score.hpp"

namespace tally::attention_call {

inline constexpr std::string_view name = "attention";

// Index of an operand in the list of inputs; -1: there is none.
using Slot = int;

// A call without its tensors: which input is what.
struct Layout {
  double scale = 1, dropout = 0;
  RandomStream dropout_stream;
  Visible visible;
  AttentionNormaliser::Kind normaliser = AttentionNormaliser::Kind::softmax;
  double offset = 0;
  Slot q = -1, k = -1, v = -1, gate_query = -1, gate_key = -1, channel_query = -1, channel_key = -1,
       channel_numbers = -1, sink = -1, rest = -1;
  // Numbers and tables of a policy.
  struct Numbers {
    const PairPolicy* policy = nullptr;
    Slot rows = -1, heads = -1, table = -1, knots = -1;
  };
  Numbers scan, beside;
  AttentionMoves::Kind moves = AttentionMoves::Kind::none;
  Slot own = -1, read = -1, taken = -1, factor = -1;
  struct Bias {
    AttentionBias::Kind kind;
    bool cap = false;
    Slot values = -1, column = -1;
  };
  std::vector<Bias> biases;
};

// Whether a sum runs along the keys.
inline bool sums_along_keys(const Layout& layout) {
  return layout.scan.policy != nullptr && layout.scan.policy->needs.scan;
}

// The same with tensors in their places, for a kernel.
struct Call {
  AttentionCall call;
  std::vector<AttentionBias> biases;

  // at(slot): the view of that operand, null for slot -1.
  template <class At>
  Call(const Layout& layout, const Tensor& output, const Tensor& row_statistics, const Tensor& prefix_sums,
       const Tensor& down_sums, At&& at) {
    call.q = at(layout.q);
    call.k = at(layout.k);
    call.v = at(layout.v);
    call.scale = layout.scale;
    call.dropout = layout.dropout;
    call.dropout_stream = layout.dropout_stream;
    const auto policy = [&](const Layout::Numbers& own, Slot gate_query, Slot gate_key) {
      return AttentionScan{own.policy,    at(gate_query), at(gate_key), at(own.rows),
                           at(own.heads), at(own.table),  at(own.knots)};
    };
    call.scan = policy(layout.scan, layout.gate_query, layout.gate_key);
    call.scan.channel_query = at(layout.channel_query);
    call.scan.channel_key = at(layout.channel_key);
    call.scan.channel_numbers = at(layout.channel_numbers);
    call.beside = policy(layout.beside, -1, -1);
    call.visible = layout.visible;
    call.moves = {layout.moves, at(layout.own), at(layout.read), at(layout.taken), at(layout.factor)};
    call.normaliser.kind = layout.normaliser;
    call.normaliser.offset = layout.offset;
    call.normaliser.sink = at(layout.sink);
    call.normaliser.rest = at(layout.rest);
    for (const Layout::Bias& one : layout.biases) biases.push_back({one.kind, at(one.values), at(one.column), one.cap});
    call.biases = biases.data();
    call.bias_count = static_cast<int>(biases.size());
    call.output = output.view();
    call.row_statistics = row_statistics.view();
    if (prefix_sums.defined()) call.prefix_sums = prefix_sums.view();
    if (down_sums.defined()) call.down_sums = down_sums.view();
  }
};

// Checks every operand against the sizes of q and k while it lists them.
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
    check(in.k.shape() == Shape{batch_, key_heads_, keys_, in.q.size(3)}, name,
          "q [B, H, T, d] and k [B, G, K, d] differ in more than their heads and lengths: got ", in.q.shape(), " and ",
          in.k.shape());
    check(key_heads_ == heads_ || (key_heads_ > 0 && heads_ % key_heads_ == 0), name, "the ", key_heads_,
          " heads of k do not divide the ", heads_, " of q");
    check(in.v.shape() == Shape{batch_, key_heads_, keys_, in.v.size(3)}, name,
          "k [B, G, K, d] and v [B, G, K, e] do not belong together: got ", in.k.shape(), " and ", in.v.shape());
    check(queries_ <= keys_, name, "the queries are the last tokens, but there are ", queries_, " of them for ", keys_,
          " keys");
    check(in.dropout >= 0 && in.dropout < 1, name, "the dropout rate must be at least 0 and below 1, got ", in.dropout);
    layout.scale = in.scale;
    layout.dropout = in.dropout;
    layout.dropout_stream = in.dropout_stream;
    for (const std::int64_t number : {in.visible.window, in.visible.chunk, in.visible.first}) {
      check(number >= 0 && number <= Visible::most, name,
            "window, chunk and first of what a query sees are from 0 to 2^31 - 1, got ", number);
    }
    layout.visible = in.visible;
    layout.q = add(in.q);
    layout.k = add(in.k);
    layout.v = add(in.v);
    if (score.moved) add_moved(*score.moved);
    if (score.scan) add_scan(*score.scan);
    if (score.beside) add_beside(*score.beside);
    for (const Bias& bias : score.biases) std::visit([&](const auto& shape) { add_bias(shape); }, bias);
    add_normaliser(score.normaliser);
  }

  Layout layout;
  std::vector<Tensor> inputs;

 private:
  static void check_heads(std::string_view what, const Tensor& x) {
    check_floating(name, x);
    check(x.rank() == 4, name, what, " must be [B, H, tokens, width], got ", x.shape());
  }
  Slot add(const Tensor& x) {
    inputs.push_back(x);
    return static_cast<Slot>(inputs.size()) - 1;
  }
  Slot add(std::string_view what, const Tensor& x, const Shape& shape, DType dtype) {
    check_defined(name, x);
    check(x.shape() == shape && x.dtype() == dtype, name, what, " must be ", dtype, " ", shape, ", got ", x.dtype(),
          " ", x.shape());
    check_same_device(name, in_.q, x);
    return add(x);
  }
  Slot add(std::string_view what, const Tensor& x, const Shape& shape) { return add(what, x, shape, in_.q.dtype()); }
  // The last axis may have any size above 0.
  Slot add_rows(std::string_view what, const Tensor& x) {
    check_defined(name, x);
    check(x.rank() == 4 && x.size(3) > 0, name, what, " must be [B, H, T, entries], got ", x.shape());
    return add(what, x, {batch_, heads_, queries_, x.size(3)});
  }

  // Its queries and keys are q and k already, before what of these does not move.
  void add_moved(const MovedProduct& moved) {
    using Kind = AttentionMoves::Kind;
    check(queries_ == keys_, name, "queries that move are those of all keys, but there are ", queries_, " for ", keys_,
          " keys");
    const std::int64_t block = std::min(keys_, moved_block), blocks = block == 0 ? 0 : (keys_ + block - 1) / block;
    layout.moves = moved.factor.defined() ? Kind::channels : Kind::product;
    layout.own = add("the products in blocks", moved.own, {batch_, heads_, queries_, block});
    const std::int64_t width = moved.queries.size(3);
    if (layout.moves == Kind::channels) {
      layout.factor = add("the factors of blocks", moved.factor, {batch_, key_heads_, blocks, width});
      return;
    }
    layout.read = add("what blocks read of queries", moved.read, {batch_, key_heads_, keys_, width});
    layout.taken = add("what blocks take off queries", moved.taken, {batch_, key_heads_, keys_, width});
  }
  void add_gates(const Gates& gates) {
    if (!gates.query.defined()) return;
    check_heads("the query of the gates", gates.query);
    layout.gate_query = add("the query of the gates", gates.query, {batch_, heads_, queries_, gates.query.size(3)});
    layout.gate_key = add("the key of the gates", gates.key, {batch_, key_heads_, keys_, gates.query.size(3)});
  }
  Layout::Numbers add_numbers(const Pair& pair) {
    const PairPolicy& policy = *pair.policy;
    Layout::Numbers own{&policy};
    if (policy.needs.rows > 0) {
      own.rows = add("the numbers of rows", pair.rows, {batch_, heads_, queries_, policy.needs.rows});
    }
    if (policy.needs.table) own.table = add_rows("the table of positions", pair.table);
    if (policy.needs.knots) {
      const std::int64_t entries = pair.table.size(3);
      check(entries % 2 == 0, name, "a table between knots has a value and a slope for each, got ", entries,
            " numbers");
      check_defined(name, pair.knots);
      own.knots = add("the knots", pair.knots.to_dense(), {entries / 2});
    }
    if (policy.needs.heads > 0) own.heads = add("the numbers of heads", pair.heads, {heads_, policy.needs.heads});
    check(is_compiled(policy, in_.q.device()), name, "the policy '", policy.name, "' is not compiled for ",
          to_text(in_.q.device()), ": composed attention has it there");
    return own;
  }
  void add_scan(const Pair& scan) {
    const PairPolicy& policy = *scan.policy;
    check(policy.needs.other || !scan.other.query.defined(), name, "the policy '", policy.name,
          "' is given operands of p.other, but needs.other is false");
    check(!policy.needs.down || queries_ == keys_, name, "the policy '", policy.name,
          "' sums down the queries, of which all must be there: got ", queries_, " for ", keys_, " keys");
    layout.scan = add_numbers(scan);
    add_gates(scan.other);
    if (policy.needs.channels.any()) add_channels(policy, scan.channels);
  }
  void add_channels(const PairPolicy& policy, const Channels& own) {
    const ChannelNeeds& needs = policy.needs.channels;
    const auto count = [&](std::string_view what, const Tensor& x, int numbers) {
      check_defined(name, x);
      const std::int64_t width = x.rank() == 4 ? x.size(3) : 0;
      check(width > 0 && width % numbers == 0, name, what, " of '", policy.name, "' must be [B, heads, tokens, ",
            numbers, " C] with C channels, got ", x.shape());
      return width / numbers;
    };
    const std::int64_t channels = needs.of_query > 0 ? count("the vectors of queries", own.query, needs.of_query)
                                                     : count("the vectors of keys", own.key, needs.of_key);
    if (needs.of_query > 0) {
      layout.channel_query =
          add("the vectors of queries", own.query, {batch_, heads_, queries_, needs.of_query * channels});
    }
    if (needs.of_key > 0) {
      layout.channel_key = add("the vectors of keys", own.key, {batch_, key_heads_, keys_, needs.of_key * channels});
    }
    if (needs.of_channel > 0) {
      check_defined(name, own.numbers);
      check(!requires_grad(own.numbers), name, "numbers of channels are constants of '", policy.name,
            "', but these are learned: make them a vector of the query");
      layout.channel_numbers = add("the numbers of channels", own.numbers.to_dense(), {needs.of_channel * channels});
    }
  }
  void add_beside(const Pair& pair) {
    check(Score::takes_beside(in_.q.device()), name, "a policy beside the scan is for the CPU, got ",
          to_text(in_.q.device()));
    layout.beside = add_numbers(pair);
  }
  void add_normaliser(const Normaliser& normaliser) {
    using Kind = Normaliser::Kind;
    check(!normaliser.sink.defined() || normaliser.kind == Kind::softmax, name, "a sink is of a softmax alone");
    check(normaliser.offset == 0 || normaliser.kind == Kind::sigmoid, name, "an offset is of sigmoid weights alone");
    layout.normaliser = normaliser.kind;
    layout.offset = normaliser.offset;
    if (normaliser.sink.defined()) layout.sink = add("the sink", normaliser.sink, {heads_});
    if (normaliser.rest.defined()) {
      layout.rest = add("the rest", normaliser.rest, {batch_, heads_, queries_, in_.v.size(3)});
    }
  }

  void add_bias(const Toeplitz& bias) {
    check_defined(name, bias.bias);
    check(bias.bias.rank() == 2 && bias.bias.size(1) >= keys_, name, "a toeplitz bias of ", bias.bias.size(-1),
          " distances does not cover ", keys_, " tokens");
    const Slot values = add("a toeplitz bias", bias.bias, {heads_, bias.bias.size(1)});
    layout.biases.push_back({AttentionBias::Kind::toeplitz, false, values});
  }
  void add_bias(const RowColumn& bias) {
    Layout::Bias one{AttentionBias::Kind::row_column};
    if (bias.row.defined()) one.values = add("a row bias", bias.row, {batch_, heads_, queries_}, DType::f64);
    if (bias.column.defined()) one.column = add("a column bias", bias.column, {batch_, heads_, keys_}, DType::f64);
    layout.biases.push_back(one);
  }
  void add_bias(const RowToeplitz& bias) {
    const Slot values = add_rows("a bias of rows by distance", bias.z);
    layout.biases.push_back({AttentionBias::Kind::row_toeplitz, bias.cap, values});
  }
  void add_bias(const Product&) { check_internal(false, name, "a product was not joined to that of q and k"); }
  void add_bias(const Dense& bias) {
    check_defined(name, bias.bias);
    const Shape shape{batch_, heads_, queries_, keys_};
    const Slot values = add("a dense bias", broadcast_to(bias.bias, shape), shape);
    layout.biases.push_back({AttentionBias::Kind::dense, false, values});
  }

  const AttentionOperands& in_;
  std::int64_t batch_ = 0, heads_ = 0, key_heads_ = 0, queries_ = 0, keys_ = 0;
};

}  // namespace tally::attention_call

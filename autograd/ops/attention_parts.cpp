// Attention with a MovedProduct (autograd/score.hpp), one part of the rows at a time. A part has whole blocks of rows.
// Ordinary operations compute the products of a part with all unmasked keys, for all of its rows at once:
//   own block: as given;  the block before: q as given;  each block n that a query passes:  q <- q - (q read_n^T)
//   taken_n.
// They are the dense bias of a call without q.k. Backward recomputes them. Only one part's products are in memory at a
// time, so memory is linear in the length.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/attention_call.hpp"
#include "autograd/recompute.hpp"

namespace tally::attention_call {
namespace {

// Rows begin .. end - 1 of the queries, with the keys first_key .. end - 1.
struct Part {
  std::int64_t begin, end, first_key;
};

// The first key of a part whose first row is `row`: all keys before it are masked. With chunks it is the first key of a
// chunk, because a part counts chunks from its first key.
std::int64_t first_key_of(const AttentionMask& mask, std::int64_t row) {
  if (mask.first > 0) return 0;
  return mask.chunk > 0 ? row / mask.chunk * mask.chunk : mask.begin(row);
}

std::vector<Part> parts_of(const Layout& layout, const Shape& q, std::int64_t block, std::int64_t at_once) {
  const std::int64_t heads = q[0] * q[1], length = q[2];
  std::vector<Part> parts;
  if (length == 0) return parts;
  for (std::int64_t begin = 0; begin < length; begin = parts.back().end) {
    const std::int64_t first_key = first_key_of(layout.call.mask, begin);
    const auto products = [&](std::int64_t end) { return heads * (end - begin) * (end - first_key); };
    const auto with_more = [&](std::int64_t end) { return std::min(length, end + block); };
    std::int64_t end = with_more(begin);
    while (end < length && products(with_more(end)) <= at_once) end = with_more(end);
    parts.push_back({begin, end, first_key});
  }
  return parts;
}

// The axes along which an operand is sliced. distances: a part has one for each key.
enum class Along : std::uint8_t { nothing, rows, keys, pairs, distances };

std::vector<Along> axes_of(const Layout& layout, std::size_t inputs) {
  std::vector<Along> axes(inputs, Along::nothing);
  const auto set = [&](const Slot& slot, Along along) {
    if (slot.index >= 0) axes[static_cast<std::size_t>(slot.index)] = along;
  };
  for_each_row_operand([&](const Slot& slot) { set(slot, Along::rows); }, layout.slots);
  for_each_key_operand([&](const Slot& slot) { set(slot, Along::keys); }, layout.slots);
  set(layout.slots.distance.key, Along::distances);
  set(layout.moves.own, Along::rows);
  for (const Slot& slot : {layout.moves.read, layout.moves.taken}) set(slot, Along::keys);
  for (std::size_t n = 0; n < layout.biases.size(); ++n) {
    using Kind = AttentionBias::Kind;
    const BiasOperands<Slot>& slots = layout.bias_slots[n];
    switch (layout.biases[n].kind) {
      case Kind::toeplitz: break;
      case Kind::row_column: set(slots.column, Along::keys); [[fallthrough]];
      case Kind::row_toeplitz: set(slots.values, Along::rows); break;
      case Kind::dense: set(slots.values, Along::pairs); break;
    }
  }
  return axes;
}

Tensor view_of(const Part& part, Along along, const Tensor& whole) {
  const auto keys = [&](int axis) { return whole.slice_view(axis, part.first_key, part.end); };
  switch (along) {
    case Along::nothing: return whole;
    case Along::rows: return whole.slice_view(2, part.begin, part.end);
    case Along::keys: return keys(2);
    case Along::pairs: return keys(3).slice_view(2, part.begin, part.end);
    case Along::distances: return whole.slice_view(2, 0, std::min(whole.size(2), part.end - part.first_key));
  }
  return {};
}

// The MovedProduct of a part: its MoveOperands, and the channels of q and k that belong to it.
struct Moving {
  Tensor q, k;
  MoveOperands<Tensor> by;
};

// The scaled products with the keys of the part, [B, H, rows, keys]; values above the diagonal are not used.
Tensor products_of(const Part& part, const Moving& moving, std::int64_t block, double scale) {
  const std::int64_t heads = moving.q.size(1), first_own = part.begin / block;
  const auto rows_of = [&](const Tensor& x, std::int64_t n) {
    return slice(x, 2, n * block - part.begin, std::min(part.end, (n + 1) * block) - part.begin);
  };
  const auto keys_of = [&](const Tensor& x, std::int64_t n) {
    const std::int64_t begin = std::max(part.first_key, n * block), end = std::min(part.end, (n + 1) * block);
    return by_query_head(slice(x, 2, begin - part.first_key, end - part.first_key), heads);
  };
  Tensor walking;               // queries of the rows after block n, as updated for its keys
  std::vector<Tensor> columns;  // from the last block to the first
  for (std::int64_t n = (part.end - 1) / block;; --n) {
    std::vector<Tensor> column;
    if (n >= first_own) {
      const Tensor own = rows_of(moving.by.own, n);
      if (n > first_own) {
        const Shape later{own.size(0), heads, (n - first_own) * block, own.size(2)};
        column.push_back(Tensor::zeros(later, own.dtype(), own.device()));
      }
      column.push_back(slice(own, 3, 0, own.size(2)) * scale);
    }
    if (walking.defined()) column.push_back(matmul(walking, transpose(keys_of(moving.k, n), -1, -2), scale));
    columns.push_back(column.size() == 1 ? column.front() : concat(column, 2));
    if (n * block <= part.first_key) break;
    if (walking.defined()) {
      walking = moving.by.factor.defined()
                    ? walking * by_query_head(slice(moving.by.factor, 2, n, n + 1), heads)
                    : walking - matmul(matmul(walking, transpose(keys_of(moving.by.read, n), -1, -2)),
                                       keys_of(moving.by.taken, n));
    }
    if (n < first_own) continue;
    const Tensor joining = rows_of(moving.q, n);
    walking = walking.defined() ? concat({joining, walking}, 2) : joining;
  }
  std::reverse(columns.begin(), columns.end());
  return columns.size() == 1 ? columns.front() : concat(columns, 3);
}

// The channels of x from `first` on. If none are left: one channel of zeros, which takes no gradient.
Tensor others_of(const Tensor& x, std::int64_t first) {
  if (x.size(3) > first) return slice(x, 3, first, x.size(3));
  const Shape none{x.size(0), x.size(1), x.size(2), 1};
  return Tensor::zeros({1, 1, 1, 1}, x.dtype(), x.device()).broadcast_view(operation_name, none);
}

Tensor attend_part(const Part& part, const Layout& whole, const std::vector<Tensor>& inputs, std::int64_t block,
                   std::int64_t length) {
  const auto input = [&](const Slot& slot) {
    return slot.index < 0 ? Tensor() : inputs[static_cast<std::size_t>(slot.index)];
  };
  const MoveOperands<Slot>& moves = whole.moves;
  Moving moving;
  moving.by = {input(moves.own), input(moves.read), input(moves.taken), input(moves.factor)};
  const Tensor q = input(whole.slots.q), k = input(whole.slots.k);
  const std::int64_t width = moving.by.factor.defined() ? moving.by.factor.size(3) : moving.by.read.size(3);
  moving.q = slice(q, 3, 0, width);
  moving.k = slice(k, 3, 0, width);

  Layout own = whole;
  own.moves = {};
  own.precision = OutputPrecision::full;
  own.call.dropout_tokens = length;
  own.call.dropout_stream.first += static_cast<std::uint64_t>(part.first_key * (length + 1));
  std::vector<Tensor> its;
  const auto put = [&](Slot& slot, const Tensor& x) {
    its.push_back(x);
    slot.index = static_cast<int>(its.size()) - 1;
  };
  const auto keep = [&](Slot& slot) {
    if (slot.index >= 0) put(slot, input(slot));
  };
  for_each_operand(keep, own.slots);
  its[static_cast<std::size_t>(own.slots.q.index)] = others_of(q, width);
  its[static_cast<std::size_t>(own.slots.k.index)] = others_of(k, width);
  for (BiasOperands<Slot>& bias : own.bias_slots) {
    keep(bias.values);
    keep(bias.column);
  }
  own.biases.push_back({{}, AttentionBias::Kind::dense, false});
  own.bias_slots.emplace_back();
  put(own.bias_slots.back().values, products_of(part, moving, block, whole.call.scale));
  return attend(own, its);
}

}  // namespace

Tensor attend_in_parts(const Layout& layout, const std::vector<Tensor>& inputs, std::int64_t at_once) {
  const auto input = [&](const Slot& slot) { return inputs[static_cast<std::size_t>(slot.index)]; };
  const Tensor q = input(layout.slots.q);
  const std::int64_t length = q.size(2), block = input(layout.moves.own).size(3);
  const std::vector<Part> parts = parts_of(layout, q.shape(), block, at_once);
  const std::vector<Along> axes = axes_of(layout, inputs.size());
  const Tensor output =
      empty_by_token({q.size(0), q.size(1), length, input(layout.slots.v).size(3)}, q.dtype(), q.device());
  return recomputed(
      operation_name, inputs,
      {parts.size(),
       [parts, axes](std::size_t part, std::size_t n, const Tensor& whole) {
         return view_of(parts[part], axes[n], whole);
       },
       [parts](std::size_t part, const Tensor& whole) { return view_of(parts[part], Along::rows, whole); }},
      output, [parts, layout, block, length](std::size_t part, const std::vector<Tensor>& own) {
        return attend_part(parts[part], layout, own, block, length);
      });
}

}  // namespace tally::attention_call

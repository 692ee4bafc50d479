// Attention with a MovedProduct (autograd/score.hpp), one part of the rows at a time. A part has whole blocks of rows.
// Ordinary operations compute the products of a part with all unmasked keys, for all of its rows at once:
//   own block: as given;  the block before: q as given;  each block n that a query passes:  q <- q - (q read_n^T)
//   taken_n.
// They are the dense bias of a call without q.k. Backward recomputes them. Only one part's products are in memory at a
// time, so memory is linear in the length.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/ops/attention_call.hpp"
#include "autograd/recompute.hpp"

namespace tally::attention_call {
namespace {

// A problem from its inputs. `form` has its options and its biases.
using Form = AttentionProblem<std::monostate>;
Form form_of(const Problem& problem) {
  return transformed<std::monostate>([](const auto&, const Tensor&) { return std::monostate(); }, problem);
}
Problem with_inputs(const Form& form, const std::vector<Tensor>& inputs) {
  std::size_t n = 0;
  return transformed<Tensor>([&](const auto&, std::monostate) { return inputs[n++]; }, form);
}

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

std::vector<Part> parts_of(const AttentionMask& mask, const Shape& q, std::int64_t block, std::int64_t at_once) {
  const std::int64_t heads = q[0] * q[1], length = q[2];
  std::vector<Part> parts;
  if (length == 0) return parts;
  for (std::int64_t begin = 0; begin < length; begin = parts.back().end) {
    const std::int64_t first_key = first_key_of(mask, begin);
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

Along axis_of(const OperandRule& rule) {
  const char third = rule.shape.size() > 2 ? rule.shape[2] : ' ';
  if (third == 'T') return rule.shape.back() == 'K' ? Along::pairs : Along::rows;
  return third == 'K' ? Along::keys : third == 'W' ? Along::distances : Along::nothing;
}

Tensor view_of(const Part& part, Along along, const Tensor& whole) {
  if (!whole.defined()) return {};
  const auto keys = [&](int axis) { return whole.detached_slice(axis, part.first_key, part.end); };
  switch (along) {
    case Along::nothing: return whole;
    case Along::rows: return whole.detached_slice(2, part.begin, part.end);
    case Along::keys: return keys(2);
    case Along::pairs: return keys(3).detached_slice(2, part.begin, part.end);
    case Along::distances: return whole.detached_slice(2, 0, std::min(whole.size(2), part.end - part.first_key));
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
    return repeat_kv(slice(x, 2, begin - part.first_key, end - part.first_key), heads);
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
                    ? walking * repeat_kv(slice(moving.by.factor, 2, n, n + 1), heads)
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
  return Tensor::zeros({1, 1, 1, 1}, x.dtype(), x.device()).detached_broadcast(operation_name, none);
}

Tensor attend_part(const Part& part, Problem x, std::int64_t block, std::int64_t length) {
  const MoveOperands<Tensor> moves = std::exchange(x.moves, {});
  const std::int64_t width = moves.factor.defined() ? moves.factor.size(3) : moves.read.size(3);
  const Moving moving{slice(x.q, 3, 0, width), slice(x.k, 3, 0, width), moves};
  x.dropout_tokens = length;
  x.dropout_stream.first += static_cast<std::uint64_t>(part.first_key * (length + 1));
  x.q = others_of(x.q, width);
  x.k = others_of(x.k, width);
  x.biases.push_back({BiasKind::dense, false, products_of(part, moving, block, x.scale), {}});
  return attend(x, OutputPrecision::full);
}

}  // namespace

Tensor attend_in_parts(const Problem& problem, std::int64_t at_once) {
  const Tensor& q = problem.q;
  const std::int64_t length = q.size(2), block = problem.moves.own.size(3);
  const std::vector<Part> parts = parts_of(problem.mask, q.shape(), block, at_once);
  std::vector<Along> axes;
  for_each_operand([&](const OperandRule& rule, const Tensor&) { axes.push_back(axis_of(rule)); }, problem);
  const Tensor output = empty_by_token({q.size(0), q.size(1), length, problem.v.size(3)}, q.dtype(), q.device());
  return recomputed(
      operation_name, inputs_of(problem),
      {parts.size(),
       [parts, axes](std::size_t part, std::size_t n, const Tensor& whole) {
         return view_of(parts[part], axes[n], whole);
       },
       [parts](std::size_t part, const Tensor& whole) { return view_of(parts[part], Along::rows, whole); }},
      output, [parts, form = form_of(problem), block, length](std::size_t part, const std::vector<Tensor>& own) {
        return attend_part(parts[part], with_inputs(form, own), block, length);
      });
}

}  // namespace tally::attention_call

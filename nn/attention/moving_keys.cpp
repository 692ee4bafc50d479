#include "nn/attention/moving_keys.hpp"

#include <algorithm>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/recompute.hpp"
#include "core/error.hpp"
#include "nn/attention/attention.hpp"

namespace tally {

Tensor in_blocks(const Tensor& rows, std::int64_t longest) {
  const std::int64_t length = rows.size(2), block = std::min(length, longest), count = (length + block - 1) / block;
  Tensor all = rows;
  if (count * block > length) {
    const Shape missing{rows.size(0), rows.size(1), count * block - length, rows.size(3)};
    all = concat({rows, Tensor::zeros(missing, rows.dtype(), rows.device())}, 2);
  }
  return reshape(all, {rows.size(0), rows.size(1), count, block, rows.size(3)});
}

namespace {

// Keys before block n, after its changes.
Tensor moved_through(const MovedInBlocks& blocks, const Tensor& keys, std::int64_t n) {
  if (blocks.factor.defined()) return keys * slice(blocks.factor, 2, n, n + 1);
  return keys - matmul(matmul(keys, transpose(select(blocks.taken, 2, n), -1, -2)), select(blocks.read, 2, n));
}

// Returns [B, H, N C, keys before + N C]. On entry `keys` are the keys before the first block, in their state there.
// With to_the_end they become all keys in their state after the last block; if not, the last block's changes are left
// out.
Tensor all_products(const MovedInBlocks& blocks, Tensor& keys, bool to_the_end) {
  const Shape& own = blocks.own.shape();
  const std::int64_t heads = own[1], count = own[2], block = own[3];
  std::vector<Tensor> rows;
  for (std::int64_t n = 0; n < count; ++n) {
    std::vector<Tensor> row;
    if (keys.defined()) {
      row.push_back(matmul(select(blocks.queries, 2, n), transpose(repeat_kv(keys, heads), -1, -2)));
    }
    row.push_back(select(blocks.own, 2, n));
    if (n + 1 < count) {
      const Shape later{own[0], heads, block, (count - n - 1) * block};
      row.push_back(Tensor::zeros(later, blocks.own.dtype(), blocks.own.device()));
    }
    rows.push_back(row.size() == 1 ? row.front() : concat(row, 3));
    if (n + 1 == count && !to_the_end) break;
    const Tensor leaving = select(blocks.keys, 2, n);
    keys = keys.defined() ? concat({moved_through(blocks, keys, n), leaving}, 2) : leaving;
  }
  return rows.size() == 1 ? rows.front() : concat(rows, 2);
}

// All products minus the products of `query` and `key`.
Tensor difference(const MovedInBlocks& blocks, Tensor& keys, bool to_the_end, const Tensor& query, const Tensor& key) {
  const Tensor all = all_products(blocks, keys, to_the_end);
  // A block may be padded with zeros after the last token.
  const Tensor moved = slice(slice(all, 2, 0, query.size(2)), 3, 0, key.size(2));
  return moved - matmul(query, transpose(repeat_kv(key, query.size(1)), -1, -2));
}

}  // namespace

Tensor products_of(const MovedInBlocks& blocks) {
  Tensor keys;
  return all_products(blocks, keys, false);
}

void join_moved(const AttentionInput& in, std::string_view name, const MovedInBlocks& blocks, Score& score) {
  const Tensor &query = in.query(true), &key = in.key();
  if (Tensor* const state = in.cached_state(name); state != nullptr) {
    const Tensor moved = difference(blocks, *state, true, query, in.keep(formatted("{} at first", name), key, 2));
    *state = slice(*state, 2, 0, in.keys());
    score.biases.emplace_back(Dense{moved * in.scale, true});
    return;
  }
  const bool by_factor = blocks.factor.defined();
  std::vector<Tensor> inputs{query, key, blocks.own, blocks.queries, blocks.keys};
  for (const Tensor& change : {blocks.read, blocks.taken, blocks.factor}) {
    if (change.defined()) inputs.push_back(change);
  }
  const auto bias_of = [by_factor, scale = in.scale](const std::vector<Tensor>& x) {
    const MovedInBlocks own =
        by_factor ? MovedInBlocks{x[2], x[3], x[4], {}, {}, x[5]} : MovedInBlocks{x[2], x[3], x[4], x[5], x[6], {}};
    Tensor keys;
    return std::vector{difference(own, keys, false, x[0], x[1]) * scale};
  };
  score.biases.emplace_back(
      Dense{recomputed(name, inputs, {.axis = 0, .step = 1, .numbers = 1 << 18}, bias_of)[0], true});
}

}  // namespace tally

#include "nn/moving_keys.hpp"

#include <algorithm>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/attention.hpp"

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

Tensor earlier_in_block(std::int64_t count, const Tensor& like, bool strictly) {
  const NoGrad not_recorded;
  const Tensor place = cumsum(Tensor::full({count}, 1.0, like.dtype(), like.device()));
  const Tensor row = unsqueeze(place, 1), column = unsqueeze(place, 0);
  return strictly ? less(column, row) : less_equal(column, row);
}

Tensor lower(const Tensor& x, bool strictly) {
  return where(earlier_in_block(x.size(-1), x, strictly), x, Tensor::zeros({1}, x.dtype(), x.device()));
}

Dense moved_scores(const AttentionInput& in, std::string_view name, const MovedInBlocks& blocks) {
  const Tensor &query = in.query(true), &key = in.key();
  const std::int64_t heads = query.size(1), length = query.size(2), count = blocks.own.size(2),
                     block = blocks.own.size(3);
  const auto zeros = [&](std::int64_t columns) {
    return Tensor::zeros({query.size(0), heads, block, columns}, query.dtype(), query.device());
  };
  Tensor* const kept = in.kept(name);
  Tensor keys = kept != nullptr ? *kept : Tensor();  // those before block n as they stand at its start
  std::vector<Tensor> rows;
  for (std::int64_t n = 0; n < count; ++n) {
    std::vector<Tensor> row;
    if (keys.defined()) {
      row.push_back(matmul(select(blocks.queries, 2, n), transpose(for_query_heads(keys, heads), -1, -2)));
    }
    row.push_back(select(blocks.own, 2, n));
    if (n + 1 < count) row.push_back(zeros((count - n - 1) * block));
    rows.push_back(row.size() == 1 ? row.front() : concat(row, 3));
    if (n + 1 == count && kept == nullptr) break;
    const Tensor leaving = select(blocks.keys, 2, n);
    keys = keys.defined() ? concat({blocks.move(keys, n), leaving}, 2) : leaving;
  }
  // Behind the last token a block may have rows of zeros.
  if (kept != nullptr) *kept = slice(keys, 2, 0, in.keys());
  const Tensor all = rows.size() == 1 ? rows.front() : concat(rows, 2);  // [B, H, N C, first + N C]
  const Tensor moved = slice(slice(all, 2, 0, length), 3, 0, in.keys());
  const Tensor plain = for_query_heads(in.keep(concat(name, " at first"), key, 2), heads);
  return {(moved - matmul(query, transpose(plain, -1, -2))) * in.scale, true};
}

}  // namespace tally

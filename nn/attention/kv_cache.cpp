#include "nn/attention/kv_cache.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "autograd/ops.hpp"
#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {

void CacheEntry::append(const Tensor& rows, int axis) {
  if (!tensor_.defined()) {
    set(rows);
    return;
  }
  const std::int64_t before = tensor_.size(axis), count = before + rows.size(axis);
  const bool fits = room_ != nullptr && room_->filled == before && count <= room_->memory.size(axis);
  if (!fits) {
    // An eighth of spare room: on average a token then copies eight earlier ones.
    Shape shape = tensor_.shape();
    shape[axis] = count + count / 8 + 16;
    room_ = std::make_shared<Room>(Room{Tensor::empty(shape, tensor_.dtype(), tensor_.device()), 0});
    room_->memory.detached_slice(axis, 0, before).copy_from(tensor_);
  }
  room_->memory.detached_slice(axis, before, count).copy_from(rows);
  room_->filled = count;
  tensor_ = room_->memory.detached_slice(axis, 0, count);
}

namespace {

// x without elements first .. first + gone - 1 along this axis.
Tensor without(const Tensor& x, int axis, std::int64_t first, std::int64_t gone) {
  const Tensor later = slice(x, axis, first + gone, x.size(axis));
  return first == 0 ? later : concat(std::vector<Tensor>{slice(x, axis, 0, first), later}, axis);
}

// The values of x [.., W] at the distances begin .. end - 1. Distances >= W are treated as in RowToeplitz.
Tensor at_distances(const Tensor& x, bool cap, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = x.size(3);
  const Tensor within = slice(x, 3, std::min(begin, width), std::min(end, width));
  if (within.size(3) == end - begin) return within;
  const Shape beyond{x.size(0), x.size(1), x.size(2), end - begin - within.size(3)};
  const Tensor rest =
      cap ? broadcast_to(slice(x, 3, width - 1, width), beyond) : Tensor::zeros(beyond, x.dtype(), x.device());
  if (within.size(3) == 0) return rest;
  return concat(std::vector<Tensor>{within, rest}, 3);
}

// Rearranges z [B, H, T or 1, W] by distance: a query that counts distances without the evicted keys then reads the
// value of each key's true distance.
RowToeplitz by_distance_left(const Tensor& z, bool cap, const AttentionInput& in, std::int64_t gone) {
  const std::int64_t first = in.mask.first, queries = in.q.size(2), left = in.keys() - gone;
  std::vector<Tensor> rows;
  for (std::int64_t t = 0; t < queries; ++t) {
    const std::int64_t index = in.first + t, behind = left - (index - gone + 1);
    const Tensor row = z.size(2) == 1 ? z : slice(z, 2, t, t + 1);
    std::vector<Tensor> parts{at_distances(row, cap, 0, index - gone - first + 1),
                              at_distances(row, cap, index - first + 1, index + 1)};
    if (behind > 0) parts.push_back(Tensor::zeros({z.size(0), z.size(1), 1, behind}, z.dtype(), z.device()));
    rows.push_back(concat(parts, 3));
  }
  const Tensor all = rows.size() == 1 ? rows.front() : concat(rows, 2);
  return {broadcast_to(all, {in.q.size(0), in.q.size(1), queries, left})};
}

}  // namespace

std::int64_t num_evicted(const AttentionMask& mask, std::int64_t next) {
  const std::int64_t gone = std::max<std::int64_t>(mask.begin(next) - mask.first, 0);
  return mask.chunk > 0 ? gone - gone % mask.chunk : gone;
}

void drop_evicted(Score& score, const AttentionInput& in, std::int64_t gone) {
  if (gone == 0) return;
  const std::int64_t first = in.mask.first;
  const auto fit = [&](Tensor& x, int axis) {
    if (x.defined() && x.size(axis) == in.keys()) x = without(x, axis, first, gone);
  };
  if (score.score_mod) fit(score.score_mod->gates.key, 2);
  for (Bias& bias : score.biases) {
    if (auto* dense = std::get_if<Dense>(&bias)) fit(dense->bias, 3);
    if (auto* sums = std::get_if<RowColumn>(&bias)) fit(sums->column, 2);
    if (auto* product = std::get_if<Product>(&bias)) fit(product->key, 2);
    if (first == 0) continue;
    if (const auto* product = std::get_if<ToeplitzProduct>(&bias)) bias = product->materialised(in.scale);
    if (const auto* by_row = std::get_if<RowToeplitz>(&bias)) {
      bias = by_distance_left(by_row->z, by_row->cap, in, gone);
    } else if (const auto* same = std::get_if<Toeplitz>(&bias)) {
      bias = by_distance_left(unsqueeze(unsqueeze(same->bias, 1), 0), false, in, gone);
    }
  }
}

void evict_masked(const Score& score, const AttentionInput& in, std::int64_t keys) {
  constexpr std::int64_t few = 64;  // evict at least this number, because each eviction copies the remaining keys
  if (in.cache == nullptr || in.mask.is_causal_only()) return;
  if (in.mask.first > 0 && score.score_mod && score.score_mod->mod->traits.distance) return;
  const std::int64_t going = num_evicted(in.mask, in.keys()) - (in.keys() - keys);
  if (going < few) return;
  for (auto& [name, kept] : *in.cache) {
    const bool beside_keys = name.starts_with(in.owner) && name.ends_with(kept_beside_keys);
    if (!beside_keys) continue;
    const Tensor& rows = kept.tensor();
    check_internal(rows.size(2) == keys, "cache", "{} has {} rows for {} keys", name, rows.size(2), keys);
    kept.set(without(rows, 2, in.mask.first, going).clone());  // a view would hold all the memory
  }
}

}  // namespace tally

#include "core/cpu/attention/distance_bias.hpp"

#include <cstring>

namespace tally::cpu {

namespace {

// Reads along diagonals: element i of a row comes from the row i rows farther down. The first step shifts within groups
// of four lanes, the second combines groups: a vector takes a quarter of its lanes from each of four shifted rows.
constexpr std::int64_t far_rows = tile_rows - 4;  // extra rows that the second step reads

// y[m][i] = x[m + i % 4][i]
template <class T>
TALLY_CLONES void shift_near(T* y, const T* x, std::int64_t count, std::int64_t lanes) {
  for (std::int64_t m = 0; m < count; ++m) {
    for (std::int64_t lane = 0; lane < lanes; lane += lane_step) {
      const T* const row = x + m * tile_rows + lane;
      T* const to = y + m * tile_rows + lane;
#pragma omp simd
      for (std::int64_t i = 0; i < lane_step; ++i) {
        const T x0 = row[i], x1 = row[i + tile_rows], x2 = row[i + 2 * tile_rows], x3 = row[i + 3 * tile_rows];
        to[i] = (i & 2) != 0 ? ((i & 1) != 0 ? x3 : x2) : ((i & 1) != 0 ? x1 : x0);
      }
    }
  }
}

// y[m step_y + i] += x[m step_x][i], from rows farther down by the first lane of i's group of four.
template <class T>
TALLY_CLONES void add_shifted_far(T* y, std::int64_t step_y, const T* x, std::int64_t step_x, std::int64_t count,
                                  std::int64_t lanes) {
  for (std::int64_t m = 0; m < count; ++m) {
    for (std::int64_t lane = 0; lane < lanes; lane += lane_step) {
      const T* const row = x + m * step_x + lane * tile_rows + lane;
      T* const to = y + m * step_y + lane;
#pragma omp simd
      for (std::int64_t i = 0; i < lane_step; ++i) {
        const T x0 = row[i], x1 = row[i + 4 * tile_rows], x2 = row[i + 8 * tile_rows], x3 = row[i + 12 * tile_rows];
        to[i] += (i & 8) != 0 ? ((i & 4) != 0 ? x3 : x2) : ((i & 4) != 0 ? x1 : x0);
      }
    }
  }
}

template <class T>
void move_rows(T* to, const T* from, std::int64_t rows) {
  if (rows > 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(rows * tile_rows) * sizeof(T));
}

}  // namespace

template <class T>
DistanceProducts<T>::DistanceProducts(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
    : call_(call),
      gradients_(gradients),
      width_(given() ? call.distance.key.shape[3] : 0),
      distances_(given() ? call.distance.key.shape[2] : 0),
      caps_(call.distance.cap && distances_ < call.keys()),
      of_e_(call.distance.key, distances_,
            {.factor = call.scale, .by_keys = gradients != nullptr, .by_rows = gradients != nullptr}, arena),
      products_(arena.take<T>(given() ? most_held * tile_rows : 0)),
      d_products_(arena.take<T>(given() && gradients != nullptr ? most_held * tile_rows : 0)),
      shifted_(arena.take<T>(given() ? (most_held + tile_rows) * tile_rows : 0)),
      d_tile_(arena.take<T>(given() && gradients != nullptr ? (tile_keys + 2 * tile_rows) * tile_rows : 0)),
      d_rows_(arena.take<T>(gradients != nullptr ? tile_rows * width_ : 0)) {}

template <class T>
auto DistanceProducts<T>::of_tile(const RowTile& rows, const KeyTile& keys) -> Distances {
  const auto multiple_below = [](std::int64_t n) { return (n + most_held) / bf16_keys * bf16_keys - most_held; };
  const std::int64_t of_first = rows.last_key - keys.first;  // distance of lane 0 to the first key
  return {multiple_below(of_first - (keys.keys - 1)), multiple_below(of_first + tile_rows - 1) + bf16_keys};
}

template <class T>
void DistanceProducts<T>::open_keys(std::int64_t batch, std::int64_t key_head) {
  if (given()) of_e_.open_keys(call_.distance.key, batch, key_head);
}

template <class T>
void DistanceProducts<T>::open_rows(const RowTile& rows) {
  if (!given()) return;
  of_e_.open_rows(call_.distance.query, rows);
  held_ = d_held_ = {};
  if (caps_) of_e_.pairs(without_mask(rows, distances_), {distances_ - 1, 1}, last_);
  if (gradients_ == nullptr) return;
  std::fill_n(d_rows_, tile_rows * width_, T{0});
  std::fill_n(d_last_, tile_rows, T{0});
  std::fill_n(d_tile_, tile_rows * tile_rows, T{0});  // before the tile's first key
}

// Writes into products_ at the distances' places.
template <class T>
void DistanceProducts<T>::multiply(const RowTile& rows, const Distances& of) {
  const auto at = [&](std::int64_t distance) { return products_ + (distance - held_.begin) * tile_rows; };
  const Distances own = in_table(of);
  const RowTile all = without_mask(rows, distances_);
  for (std::int64_t n = of.begin; n < std::min<std::int64_t>(0, of.end); ++n) std::fill_n(at(n), tile_rows, T{0});
  for (std::int64_t n = own.begin; n < own.end; n += tile_keys) {
    of_e_.pairs(all, {n, std::min(tile_keys, own.end - n)}, at(n));
  }
  for (std::int64_t n = std::max(of.begin, distances_); n < of.end; ++n) {
    if (caps_) {
      std::copy_n(last_, tile_rows, at(n));
    } else {
      std::fill_n(at(n), tile_rows, T{0});
    }
  }
}

template <class T>
void DistanceProducts<T>::add(const RowTile& rows, const KeyTile& keys, T* score) {
  const Distances wanted = of_tile(rows, keys), before = held_;
  const Distances reused{std::clamp(wanted.begin, before.begin, before.end),
                         std::clamp(wanted.end, before.begin, before.end)};
  held_ = wanted;
  if (reused.any()) {
    move_rows(products_ + (reused.begin - wanted.begin) * tile_rows,
              products_ + (reused.begin - before.begin) * tile_rows, reused.end - reused.begin);
    multiply(rows, {wanted.begin, reused.begin});
    multiply(rows, {reused.end, wanted.end});
  } else {
    multiply(rows, wanted);
  }
  // Key j reads from lane 0's distance on. Row `nearest` belongs to the last key.
  const std::int64_t nearest = rows.last_key - (keys.first + keys.keys - 1) - wanted.begin;
  shift_near(shifted_, products_ + nearest * tile_rows, keys.keys + far_rows, rows.lanes);
  add_shifted_far(score, tile_rows, shifted_ + (keys.keys - 1) * tile_rows, -tile_rows, keys.keys, rows.lanes);
}

template <class T>
void DistanceProducts<T>::gradient(const RowTile& rows, const KeyTile& keys, const T* d, T* sums) {
  const Distances wanted = of_tile(rows, keys);
  // Key tiles come from left to right, with decreasing distances.
  const std::int64_t ready =
      std::clamp(wanted.begin <= d_held_.begin ? wanted.end : d_held_.begin, d_held_.begin, d_held_.end);
  multiply_gradient(rows, {ready, d_held_.end}, sums);
  const Distances waiting{d_held_.begin, ready};
  const auto at = [&](std::int64_t distance) { return d_products_ + (distance - wanted.begin) * tile_rows; };
  if (waiting.any()) {
    move_rows(at(waiting.begin), d_products_, waiting.end - waiting.begin);
    std::fill(at(wanted.begin), at(waiting.begin), T{0});
    std::fill(at(waiting.end), at(wanted.end), T{0});
  } else {
    std::fill(at(wanted.begin), at(wanted.end), T{0});
  }
  d_held_ = wanted;
  // Distance n of lane i belongs to key j = i + (distance of lane 0 to the first key) - n. These are diagonals of the
  // tile, padded with zeros, from its last key to its first.
  const std::int64_t count = keys.keys + tile_rows - 1, of_first = rows.last_key - keys.first;
  std::copy_n(d, keys.keys * tile_rows, d_tile_ + tile_rows * tile_rows);
  std::fill_n(d_tile_ + (tile_rows + keys.keys) * tile_rows, tile_rows * tile_rows, T{0});
  shift_near(shifted_, d_tile_ + tile_rows, count + far_rows, rows.lanes);
  add_shifted_far(at(of_first + tile_rows - 1), -tile_rows, shifted_, tile_rows, count, rows.lanes);
}

template <class T>
void DistanceProducts<T>::add_gradients(const RowTile& rows, const KeyTile& distances, T* d_tile, T* sums) {
  of_e_.add_gradients(without_mask(rows, distances_), distances, gradients_->distance.query ? d_rows_ : nullptr,
                      gradients_->distance.key ? sums : nullptr, d_tile);
}

// The distances must be within d_held_.
template <class T>
void DistanceProducts<T>::multiply_gradient(const RowTile& rows, const Distances& of, T* sums) {
  const auto at = [&](std::int64_t distance) { return d_products_ + (distance - d_held_.begin) * tile_rows; };
  const Distances own = in_table(of);
  for (std::int64_t n = own.begin; n < own.end; n += tile_keys) {
    add_gradients(rows, {n, std::min(tile_keys, own.end - n)}, at(n), sums);
  }
  for (std::int64_t n = std::max(of.begin, distances_); n < of.end && caps_; ++n) {
    for (std::int64_t i = 0; i < rows.lanes; ++i) d_last_[i] += at(n)[i];
  }
}

template <class T>
void DistanceProducts<T>::close_rows(const RowTile& rows, T* sums, QueryGradient<T>& d_q) {
  if (!given()) return;
  multiply_gradient(rows, d_held_, sums);
  if (caps_) {
    const std::int64_t first = (distances_ - 1) / bf16_keys * bf16_keys, before = distances_ - 1 - first;
    std::fill_n(shifted_, before * tile_rows, T{0});
    std::copy_n(d_last_, tile_rows, shifted_ + before * tile_rows);
    add_gradients(rows, {first, before + 1}, shifted_, sums);
  }
  const View& d_query = gradients_->distance.query;
  if (d_query) d_q.take(d_query, rows, width_, d_rows_, of_e_.gradient_factor());
}

template class DistanceProducts<float>;
template class DistanceProducts<double>;

}  // namespace tally::cpu

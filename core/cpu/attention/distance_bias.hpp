// Biases that every row reads by distance, l_ij += z_i[n] with n = i - j: given as z, or as products with a vector for
// each distance, z_i[n] = scale r_i.e_n (DistanceOperands, core/attention/problem.hpp). A row tile holds z by distance
// and lane, z[n][i], for all distances of its rows. The z of a tile of pairs are diagonals of it.
#pragma once

#include "core/cpu/attention/products.hpp"

namespace tally::cpu {

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

// z of the current row tile, and its gradient. Beyond distance width - 1, z is 0; with cap, z of width - 1 applies.
template <class T>
class RowsByDistance {
 public:
  // keys: number of keys of the call, or 0 without such a bias.
  RowsByDistance(std::int64_t width, bool cap, std::int64_t keys, bool with_gradient, Arena& arena)
      : width_(width), cap_(cap) {
    const auto take = [&](bool needed, std::int64_t rows) {
      return arena.take<T>(needed && keys > 0 ? rows * tile_rows : 0);
    };
    const std::int64_t held = margin + std::max(keys, width) + tile_rows + bf16_keys;
    z_ = take(true, held);
    d_z_ = take(with_gradient, held);
    shifted_ = take(true, tile_keys + 2 * tile_rows);
    d_tile_ = take(with_gradient, tile_keys + 2 * tile_rows);
  }

  // Begins a row tile. The caller writes z at the distances 0 .. written() - 1, then calls extend().
  void open_rows(const RowTile& rows) {
    const std::int64_t first_key = rows.mask.first > 0 ? 0 : rows.mask.begin(rows.last_key) / bf16_keys * bf16_keys;
    reach_ = round_up(rows.last_key + tile_rows - first_key, bf16_keys);
    std::fill(at(-margin), at(0), T{0});
    if (d_z_ == nullptr) return;
    std::fill(d_at(-margin), d_at(std::max(reach_, width_)), T{0});
    std::fill_n(d_tile_, tile_rows * tile_rows, T{0});  // before the tile's first key
  }
  void extend() {
    for (std::int64_t n = width_; n < reach_; ++n) {
      if (cap_) {
        std::copy_n(at(width_ - 1), tile_rows, at(n));
      } else {
        std::fill_n(at(n), tile_rows, T{0});
      }
    }
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score) {
    // Key j reads from lane 0's distance on. Row `nearest` belongs to the last key.
    const std::int64_t nearest = rows.last_key - (keys.first + keys.keys - 1);
    shift_near(shifted_, at(nearest), keys.keys + far_rows, rows.lanes);
    add_shifted_far(score, tile_rows, shifted_ + (keys.keys - 1) * tile_rows, -tile_rows, keys.keys, rows.lanes);
  }
  // d: the gradient of the tile's logits, 0 for masked pairs.
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d) {
    // Distance n of lane i belongs to key j = i + (distance of lane 0 to the first key) - n. These are diagonals of the
    // tile, padded with zeros, from its last key to its first.
    const std::int64_t count = keys.keys + tile_rows - 1, of_first = rows.last_key - keys.first;
    std::copy_n(d, keys.keys * tile_rows, d_tile_ + tile_rows * tile_rows);
    std::fill_n(d_tile_ + (tile_rows + keys.keys) * tile_rows, tile_rows * tile_rows, T{0});
    shift_near(shifted_, d_tile_ + tile_rows, count + far_rows, rows.lanes);
    add_shifted_far(d_at(of_first + tile_rows - 1), -tile_rows, shifted_, tile_rows, count, rows.lanes);
  }

  std::int64_t width() const { return width_; }
  bool caps() const { return cap_ && width_ < reach_; }
  // The row tile's distances are below reach(), a multiple of bf16_keys.
  std::int64_t reach() const { return reach_; }
  std::int64_t written() const { return std::min(reach_, width_); }
  T* at(std::int64_t distance) const { return z_ + (margin + distance) * tile_rows; }
  T* d_at(std::int64_t distance) const { return d_z_ + (margin + distance) * tile_rows; }

 private:
  static constexpr std::int64_t margin = tile_rows;  // for lanes above the diagonal, whose distances are negative

  std::int64_t width_, reach_ = 0;
  bool cap_;
  T *z_, *d_z_;
  T *shifted_, *d_tile_;  // for reading along diagonals
};

// The products of one thread.
template <class T>
class DistanceProducts {
 public:
  DistanceProducts(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        width_(given() ? call.distance.key.shape[3] : 0),
        z_(given() ? call.distance.key.shape[2] : 0, call.distance.cap, given() ? call.keys() : 0, gradients != nullptr,
           arena),
        of_e_(call.distance.key, z_.width(),
              {.factor = call.scale, .by_keys = gradients != nullptr, .by_rows = gradients != nullptr}, arena),
        d_rows_(arena.take<T>(gradients != nullptr ? tile_rows * width_ : 0)) {}

  bool given() const { return static_cast<bool>(call_.distance.key); }
  void open_keys(std::int64_t batch, std::int64_t key_head) {
    if (given()) of_e_.open_keys(call_.distance.key, batch, key_head);
  }
  void open_rows(const RowTile& rows) {
    if (!given()) return;
    of_e_.open_rows(call_.distance.query, rows);
    z_.open_rows(rows);
    const RowTile all = without_mask(rows, z_.width());
    for (std::int64_t n = 0; n < z_.written(); n += tile_keys) {
      of_e_.pairs(all, {n, std::min(tile_keys, z_.written() - n)}, z_.at(n));
    }
    z_.extend();
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score) { z_.add(rows, keys, score); }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d) { z_.gradient(rows, keys, d); }
  // Adds gradients of e to `sums`, [W, w rounded up to whole vectors]. Writes the gradients of the rows, or adds them
  // to q's.
  void close_rows(const RowTile& rows, T* sums, QueryGradient<T>& d_q) {
    if (!given()) return;
    std::fill_n(d_rows_, tile_rows * width_, T{0});
    const RowTile all = without_mask(rows, z_.width());
    const auto add_gradients = [&](std::int64_t begin, std::int64_t end, T* d) {
      of_e_.add_gradients(all, {begin, end - begin}, gradients_->distance.query ? d_rows_ : nullptr,
                          gradients_->distance.key ? sums : nullptr, d);
    };
    alignas(64) T d_last[tile_rows] = {};  // of the last key, which serves all distances beyond it
    // From the farthest distances to the nearest. The order defines the bits of the sums.
    for (std::int64_t end = z_.reach(); end > 0; end -= tile_keys) {
      const std::int64_t begin = std::max<std::int64_t>(0, end - tile_keys);
      if (begin < z_.width()) add_gradients(begin, std::min(end, z_.width()), z_.d_at(begin));
      for (std::int64_t n = std::max(begin, z_.width()); n < end && z_.caps(); ++n) {
        add_keys(d_last, z_.d_at(n), 1, rows.lanes);
      }
    }
    if (z_.caps()) {
      const std::int64_t last = z_.width() - 1, first = last / bf16_keys * bf16_keys;
      std::fill(z_.d_at(first), z_.d_at(last), T{0});
      std::copy_n(d_last, tile_rows, z_.d_at(last));
      add_gradients(first, last + 1, z_.d_at(first));
    }
    const View& d_query = gradients_->distance.query;
    if (d_query) d_q.take(d_query, rows, width_, d_rows_, of_e_.gradient_factor());
  }

 private:
  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t width_;  // w
  RowsByDistance<T> z_;
  PairProducts<T> of_e_;
  T* d_rows_;  // [w, tile_rows]
};

}  // namespace tally::cpu

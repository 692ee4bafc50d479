// A bias on one tile (kinds: core/attention/problem.hpp). A thread has one object per bias, and likewise one of the
// softmax rule and of the score modification. It holds the data of the current head and row tile, and accumulates
// gradients until the tile, or the head, is done.
//
// Order of calls: open_head; for each row tile open_rows, then key tiles, then (backward) close_rows.
// Forward takes key tiles from the diagonal to the left, backward from the left to the diagonal. All memory comes from
// the kernel's workspace. A constructor reads only shapes.
#pragma once

#include "core/cpu/attention/distance_bias.hpp"

namespace tally::cpu {

template <class T>
class BiasTile {
 public:
  // sums: the head's sums, to which backward adds (SharedSums). Null in forward.
  virtual void open_head(std::int64_t batch, std::int64_t head, const BiasOperands<double*>& sums) {
    (void)batch, (void)head, (void)sums;
  }
  virtual void open_rows(const RowTile& rows) { (void)rows; }
  virtual void add(const RowTile& rows, const KeyTile& keys, T* score) = 0;
  // The largest value in the tile, or an upper bound of it; infinity if a bound would be too expensive.
  virtual double upper_bound(const RowTile& rows, const KeyTile& keys) const {
    return (void)rows, (void)keys, std::numeric_limits<double>::infinity();
  }
  virtual void gradient(const RowTile& rows, const KeyTile& keys, const T* d) = 0;
  virtual void close_rows(const RowTile& rows) { (void)rows; }

 protected:
  ~BiasTile() = default;
};

template <class T>
TALLY_CLONES void add_shifted(T* score, const T* value, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) score[j * tile_rows + i] += value[i - j];
  }
}

template <class T>
TALLY_CLONES void add_to_shifted(T* sum, const T* d, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) sum[i - j] += d[j * tile_rows + i];
  }
}

// b = values_h[i-j]. In a tile neighbouring rows read neighbouring distances, so each key takes one vector addition,
// for the bias and for its gradient.
template <class T>
class ToeplitzTile final : public BiasTile<T> {
 public:
  ToeplitzTile(const AttentionCall& call, const BiasOperands<View>& bias, const BiasOperands<View>* gradient,
               Arena& arena)
      : values_(bias.values),
        distances_(call.keys()),
        bias_(arena.take<T>(distances_ + 2 * margin)),
        largest_(arena.take<double>(blocks())),
        d_bias_(arena.take<T>(gradient != nullptr ? distances_ + 2 * margin : 0)) {}

  void open_head(std::int64_t, std::int64_t head, const BiasOperands<double*>& sums) override {
    shared_ = sums.values;
    std::fill_n(bias_, distances_ + 2 * margin, T{0});
    const T* const row = values_.as<T>() + head * values_.strides[0];
    for (std::int64_t n = 0; n < distances_; ++n) bias_[margin + n] = row[n * values_.strides[1]];
    for (std::int64_t block = 0; block < blocks(); ++block) {
      const T* const begin = bias_ + margin + block * tile_rows;
      largest_[block] =
          static_cast<double>(*std::max_element(begin, begin + std::min(tile_rows, distances_ - block * tile_rows)));
    }
  }
  void open_rows(const RowTile& rows) override {
    if (shared_ != nullptr) std::fill_n(d_bias_, rows.last_key + 2 * margin, T{0});
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score) override {
    add_shifted(score, bias_ + margin + rows.last_key - keys.first, keys.keys, rows.lanes);
  }
  double upper_bound(const RowTile& rows, const KeyTile& keys) const override {
    const std::int64_t nearest = std::max<std::int64_t>(0, rows.last_key - (keys.first + keys.keys - 1));
    const std::int64_t farthest = rows.last_key + rows.rows - 1 - keys.first;
    return *std::max_element(largest_ + nearest / tile_rows, largest_ + farthest / tile_rows + 1);
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d) override {
    add_to_shifted(d_bias_ + margin + rows.last_key - keys.first, d, keys.keys, rows.lanes);
  }
  void close_rows(const RowTile& rows) override {
    // Sums within a row tile are short; long sums are formed in double.
    const std::int64_t reached = std::min(distances_, rows.last_key + rows.rows);
    for (std::int64_t n = 0; n < reached; ++n) shared_[n] += static_cast<double>(d_bias_[margin + n]);
  }

 private:
  // Room for distances that only padding lanes or lanes above the diagonal have.
  static constexpr std::int64_t margin = tile_keys;
  std::int64_t blocks() const { return (distances_ + tile_rows - 1) / tile_rows; }

  View values_;
  std::int64_t distances_;
  T* bias_;          // distance n at margin + n
  double* largest_;  // of every tile_rows distances
  T* d_bias_;        // of the row tile at hand
  double* shared_ = nullptr;
};

template <class T>
TALLY_CLONES void add_row_column(T* score, const T* row, const T* column, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) score[j * tile_rows + i] += row[i] + column[j];
  }
}

template <class T>
TALLY_CLONES void sum_lanes(T* sum, const T* d, std::int64_t keys, std::int64_t lanes) {
  for (std::int64_t j = 0; j < keys; ++j) {
    T lane[lane_step] = {};
    for (std::int64_t i = 0; i < lanes; i += lane_step) {
#pragma omp simd
      for (std::int64_t l = 0; l < lane_step; ++l) lane[l] += d[j * tile_rows + i + l];
    }
    for (std::int64_t width = lane_step / 2; width > 0; width /= 2) {
      for (std::int64_t l = 0; l < width; ++l) lane[l] += lane[l + width];
    }
    sum[j] = lane[0];
  }
}

// b = row_i + column_j, in double: both may be large although their sum is small (running sums of a whole sequence).
template <class T>
class RowColumnTile final : public BiasTile<T> {
 public:
  RowColumnTile(const AttentionCall& call, const BiasOperands<View>& bias, const BiasOperands<View>* gradient,
                Arena& arena)
      : bias_(bias),
        gradient_(gradient),
        keys_(call.keys()),
        column_(arena.take<double>(keys_)),
        largest_(arena.take<double>(tiles_of(keys_, tile_keys))) {}

  void open_head(std::int64_t batch, std::int64_t head, const BiasOperands<double*>& sums) override {
    d_column_ = sums.column;
    const View& column = bias_.column;
    for (std::int64_t j = 0; j < keys_; ++j) {
      column_[j] =
          column ? column.as<double>()[batch * column.strides[0] + head * column.strides[1] + j * column.strides[2]]
                 : 0.0;
    }
    for (std::int64_t tile = 0; tile * tile_keys < keys_; ++tile) {
      const double* const begin = column_ + tile * tile_keys;
      largest_[tile] = *std::max_element(begin, begin + std::min(tile_keys, keys_ - tile * tile_keys));
    }
  }
  void open_rows(const RowTile& rows) override {
    const View& row = bias_.values;
    std::fill_n(row_, tile_rows, 0.0);
    std::fill_n(d_row_, tile_rows, T{0});
    for (std::int64_t i = 0; i < rows.rows && row; ++i) {
      row_[i] = row.as<double>()[rows.batch * row.strides[0] + rows.head * row.strides[1] +
                                 (rows.first + i) * row.strides[2]];
    }
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score) override {
    // Relative to the tile's last key both parts are as small as the bias itself. On the diagonal use the last key that
    // every row attends to, because rounding must not depend on later tokens.
    const double base = column_[std::min(keys.first + keys.keys - 1, rows.last_key)];
    alignas(64) T row[tile_rows], column[tile_keys];
    for (std::int64_t i = 0; i < tile_rows; ++i) row[i] = static_cast<T>(row_[i] + base);
    for (std::int64_t j = 0; j < keys.keys; ++j) column[j] = static_cast<T>(column_[keys.first + j] - base);
    add_row_column(score, row, column, keys.keys, rows.lanes);
  }
  double upper_bound(const RowTile& rows, const KeyTile& keys) const override {
    return *std::max_element(row_, row_ + rows.rows) + largest_[keys.first / tile_keys];
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d) override {
    add_keys(d_row_, d, keys.keys, rows.lanes);
    if (d_column_ == nullptr) return;
    alignas(64) T sum[tile_keys];
    sum_lanes(sum, d, keys.keys, rows.lanes);
    for (std::int64_t j = 0; j < keys.keys; ++j) d_column_[keys.first + j] += static_cast<double>(sum[j]);
  }
  void close_rows(const RowTile& rows) override {
    const View& d_row = gradient_->values;
    for (std::int64_t i = 0; i < rows.rows && d_row; ++i) {
      d_row.as<double>()[rows.batch * d_row.strides[0] + rows.head * d_row.strides[1] +
                         (rows.first + i) * d_row.strides[2]] = static_cast<double>(d_row_[i]);
    }
  }

 private:
  BiasOperands<View> bias_;
  const BiasOperands<View>* gradient_;
  std::int64_t keys_;
  double *column_, *largest_;
  double* d_column_ = nullptr;
  double row_[tile_rows];
  alignas(64) T d_row_[tile_rows];
};

// b = z_i[i-j]. No encoding adds this bias itself; in training on the CPU only the second of two products by distance
// becomes one.
template <class T>
class RowToeplitzTile final : public BiasTile<T> {
 public:
  RowToeplitzTile(const AttentionCall& call, const BiasOperands<View>& bias, const BiasOperands<View>* gradient,
                  Arena& arena)
      : values_(bias.values),
        d_values_(gradient != nullptr ? gradient->values : View{}),
        z_(values_.shape[3], bias.cap, call.keys(), static_cast<bool>(d_values_), arena) {}

  void open_rows(const RowTile& rows) override {
    z_.open_rows(rows);
    pack_lanes(z_.at(0), values_, rows, 0, z_.written());
    z_.extend();
  }
  void add(const RowTile& rows, const KeyTile& keys, T* score) override { z_.add(rows, keys, score); }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d) override {
    if (d_values_) z_.gradient(rows, keys, d);
  }
  void close_rows(const RowTile& rows) override {
    if (!d_values_) return;
    if (z_.caps()) {
      alignas(64) T d_last[tile_rows] = {};  // from the farthest distance that reads the last value
      for (std::int64_t n = z_.reach() - 1; n >= z_.width() - 1; --n) add_keys(d_last, z_.d_at(n), 1, rows.lanes);
      std::copy_n(d_last, tile_rows, z_.d_at(z_.width() - 1));
    }
    unpack_lanes(d_values_, rows, z_.width(), z_.d_at(0), T{1});
  }

 private:
  View values_, d_values_;
  RowsByDistance<T> z_;
};

// b = values_ij
template <class T>
class DenseTile final : public BiasTile<T> {
 public:
  DenseTile(const AttentionCall&, const BiasOperands<View>& bias, const BiasOperands<View>* gradient, Arena& arena)
      : values_(bias.values), gradient_(gradient), transposed_(arena.take<T>(tile_keys * tile_rows)) {}

  void add(const RowTile& rows, const KeyTile& keys, T* score) override {
    pack_lanes(transposed_, values_, rows, keys.first, keys.keys);
    add_tile(score, transposed_, T{1}, keys.keys, rows.rows);
  }
  void gradient(const RowTile& rows, const KeyTile& keys, const T* d) override {
    if (gradient_->values) unpack_lanes(gradient_->values, rows, keys.keys, d, T{1}, {}, keys.first);
  }

 private:
  View values_;
  const BiasOperands<View>* gradient_;
  T* transposed_;  // [tile_keys, tile_rows]
};

// Null if the arena only counts.
template <class T>
BiasTile<T>* make_bias_tile(const AttentionCall& call, const BiasOperands<View>& bias,
                            const BiasOperands<View>* gradient, Arena& arena) {
  switch (bias.kind) {
    case BiasKind::toeplitz: return arena.make<ToeplitzTile<T>>(call, bias, gradient);
    case BiasKind::row_column: return arena.make<RowColumnTile<T>>(call, bias, gradient);
    case BiasKind::row_toeplitz: return arena.make<RowToeplitzTile<T>>(call, bias, gradient);
    case BiasKind::dense: return arena.make<DenseTile<T>>(call, bias, gradient);
  }
  return nullptr;
}

}  // namespace tally::cpu

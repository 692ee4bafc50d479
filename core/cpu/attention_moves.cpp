#include "core/cpu/attention_moves.hpp"

#include <cmath>

namespace tally::cpu {

static_assert(moved_block == tile_rows, "a row tile lies in one block");

namespace {

using Kind = AttentionMoves::Kind;

std::int64_t moving_width(const AttentionMoves& moves) {
  if (moves.kind == Kind::none) return 0;
  return moves.kind == Kind::product ? moves.read.shape[3] : moves.factor.shape[3];
}
std::int64_t block_count(const AttentionCall& call) {
  return call.moves.kind == Kind::none ? 0 : (call.keys() + call.moves.own.shape[3] - 1) / call.moves.own.shape[3];
}

// to = from, channel c times factor[c].
template <class T>
TALLY_CLONES void scale_channels(T* to, const T* from, const T* factor, std::int64_t width) {
  for (std::int64_t c = 0; c < width; ++c) {
#pragma omp simd
    for (std::int64_t i = 0; i < tile_rows; ++i) to[c * tile_rows + i] = factor[c] * from[c * tile_rows + i];
  }
}

// sum[c] += sum over the rows of a b.
template <class T>
TALLY_CLONES void add_products_of_channels(T* sum, const T* a, const T* b, std::int64_t width, std::int64_t rows) {
  for (std::int64_t c = 0; c < width; ++c) {
    alignas(64) T lane[lane_step] = {};
    std::int64_t i = 0;
    for (; i + lane_step <= rows; i += lane_step) {
#pragma omp simd
      for (std::int64_t l = 0; l < lane_step; ++l) lane[l] += a[c * tile_rows + i + l] * b[c * tile_rows + i + l];
    }
    for (std::int64_t l = 0; i + l < rows; ++l) lane[l] += a[c * tile_rows + i + l] * b[c * tile_rows + i + l];
    for (std::int64_t half = lane_step / 2; half > 0; half /= 2) {
      for (std::int64_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    }
    sum[c] += lane[0];
  }
}

// squares[i] += sum over the channels of x^2
template <class T>
TALLY_CLONES void add_squares(T* squares, const T* x, std::int64_t width, std::int64_t lanes) {
  for (std::int64_t c = 0; c < width; ++c) {
#pragma omp simd
    for (std::int64_t i = 0; i < lanes; ++i) squares[i] += x[c * tile_rows + i] * x[c * tile_rows + i];
  }
}

}  // namespace

template <class T>
Moves<T>::Moves(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
    : call_(call),
      gradients_(gradients),
      given_(call.moves.kind != Kind::none),
      product_(call.moves.kind == Kind::product),
      all_width_(call.q.shape[3]),
      all_ld_(round_up(all_width_, vector_lanes<T>)),
      width_(moving_width(call.moves)),
      ld_(round_up(width_, vector_lanes<T>)),
      block_(given_ ? call.moves.own.shape[3] : 0),
      blocks_(block_count(call)),
      read_(arena.take<T>(product_ ? call.keys() * width_ : 0)),
      taken_(arena.take<T>(product_ ? call.keys() * width_ : 0)),
      factor_(arena.take<T>(product_ ? 0 : blocks_ * width_)),
      own_rows_(arena.take<T>(tile_rows * block_)),
      own_lanes_(arena.take<T>(block_ * tile_rows)),
      at_(arena.take<T>(blocks_ * width_ * tile_rows)),
      read_off_(arena.take<T>(!product_ ? 0 : (gradients != nullptr ? blocks_ : 1) * block_ * tile_rows)),
      norm_(arena.take<double>(blocks_)) {
  if (!given_ || gradients == nullptr) return;
  rows_ = arena.take<T>(tile_rows * all_ld_);
  d_lanes_ = arena.take<T>(width_ * tile_rows);
  d_rows_ = arena.take<T>(product_ ? tile_rows * ld_ : 0);
  d_read_off_ = arena.take<T>(product_ ? block_ * tile_rows : 0);
}

template <class T>
void Moves<T>::open_keys(const Chunk& chunk) {
  const auto pack = [&](T* target, const View& x) {
    const std::int64_t rows = x.shape[2];
    pack_rows(target, width_, x, chunk.batch, chunk.key_head, 0, rows, width_, T{1}, rows);
  };
  if (!product_) return pack(factor_, call_.moves.factor);
  pack(read_, call_.moves.read);
  pack(taken_, call_.moves.taken);
}

template <class T>
void Moves<T>::open_rows(const RowTile& rows, const T* q_rows, const T* q_lanes) {
  q_rows_ = q_rows;
  q_lanes_ = q_lanes;
  own_ = rows.last_key / block_;
  reached_ = own_;
  std::fill_n(norm_, blocks_, -1.0);
  pack_rows(own_rows_, block_, call_.moves.own, rows.batch, rows.head, rows.first, rows.rows, block_,
            static_cast<T>(call_.scale), tile_rows);
  transpose_to_lanes(own_lanes_, own_rows_, block_, block_);
}

template <class T>
template <class F>
void Moves<T>::for_each_part(const KeyTile& keys, F&& f) const {
  const std::int64_t end = keys.first + keys.keys;
  for (std::int64_t block = keys.first / block_; block * block_ < end; ++block) {
    const std::int64_t first = std::max(keys.first, block * block_);
    f(block, first, std::min(end, (block + 1) * block_) - first);
  }
}

template <class T>
const T* Moves<T>::reach(const RowTile& rows, std::int64_t block) {
  for (; reached_ > block; --reached_) {
    if (reached_ < own_) move(rows, reached_, at(reached_), at_ + (reached_ - 1) * width_ * tile_rows);
  }
  return at(block);
}

template <class T>
void Moves<T>::move(const RowTile& rows, std::int64_t block, const T* from, T* to) {
  if (!product_) return scale_channels(to, from, factor_ + block * width_, width_);
  T* const off = read_off(block);
  const std::int64_t first = block * block_ * width_;
  lane_product(off, tile_rows, read_ + first, width_, 1, from, tile_rows, block_, rows.lanes, width_, false);
  scale_tile(off, T{-1}, block_, rows.lanes);
  std::copy_n(from, width_ * tile_rows, to);
  lane_product(to, tile_rows, taken_ + first, 1, width_, off, tile_rows, width_, rows.lanes, block_, false);
  // A product that is added to is summed by itself first: term by term each would be rounded like the large sum.
  add_tile(to, from, T{1}, width_, rows.lanes);
}

template <class T>
double Moves<T>::largest_norm(const RowTile& rows, const KeyTile& keys) {
  double largest = 0;
  for_each_part(keys, [&](std::int64_t block, std::int64_t, std::int64_t) {
    if (block == own_) {
      largest = std::numeric_limits<double>::infinity();
      return;
    }
    if (norm_[block] < 0) {
      alignas(64) T squares[tile_rows] = {};
      add_squares(squares, reach(rows, block), width_, rows.lanes);
      add_squares(squares, q_lanes_ + width_ * tile_rows, others(), rows.lanes);
      norm_[block] = std::sqrt(static_cast<double>(*std::max_element(squares, squares + rows.rows)));
    }
    largest = std::max(largest, norm_[block]);
  });
  return largest;
}

template <class T>
void Moves<T>::scores(const RowTile& rows, const KeyTile& keys, const T* k, T* score) {
  for_each_part(keys, [&](std::int64_t block, std::int64_t first, std::int64_t count) {
    T* const part = score + (first - keys.first) * tile_rows;
    if (block == own_) {
      std::copy_n(own_lanes_ + (first - block * block_) * tile_rows, count * tile_rows, part);
    } else {
      lane_product(part, tile_rows, k + first * all_width_, all_width_, 1, reach(rows, block), tile_rows, count,
                   rows.lanes, width_, false);
    }
  });
  if (others() == 0) return;
  lane_product(score, tile_rows, k + keys.first * all_width_ + width_, all_width_, 1, q_lanes_ + width_ * tile_rows,
               tile_rows, keys.keys, rows.lanes, others(), true);
}

template <class T>
void Moves<T>::open_gradient() {
  constexpr std::int64_t none = -1;
  in_rows_ = carried_ = none;
  std::copy_n(q_rows_, tile_rows * all_ld_, rows_);
}

// What stands behind the channels that move stays.
template <class T>
void Moves<T>::put_in_rows(std::int64_t block) {
  if (in_rows_ == block) return;
  transpose_to_rows(rows_, all_ld_, at(block), width_);
  in_rows_ = block;
}

template <class T>
void Moves<T>::gradient(const RowTile& rows, const KeyTile& keys, const T* k, const T* d_score, T* d_q_lanes, T* d_k,
                        const MoveOperands<T*>& sums) {
  for_each_part(keys, [&](std::int64_t block, std::int64_t first, std::int64_t count) {
    const T* const d = d_score + (first - keys.first) * tile_rows;
    T* const d_part = d_k + first * all_ld_;
    if (block != own_) {
      carry(rows, block, sums);
      lane_product(d_lanes_, tile_rows, k + first * all_width_, 1, all_width_, d, tile_rows, width_, rows.lanes, count,
                   true);
      put_in_rows(block);
      lane_product(d_part, all_ld_, d, tile_rows, 1, rows_, all_ld_, count, all_ld_, rows.rows, true);
      return;
    }
    if (gradients_->moves.own) {
      const Matrix<T> d_own(gradients_->moves.own, rows.batch, rows.head);
      const T scale = static_cast<T>(call_.scale);
      for (std::int64_t i = 0; i < rows.rows; ++i) {
        T* const row = &d_own.at(rows.first + i, first - block * block_);
        for (std::int64_t j = 0; j < count; ++j) row[j * d_own.column_step] = scale * d[j * tile_rows + i];
      }
    }
    if (others() == 0) return;
    for (std::int64_t i = 0; i < tile_rows; ++i) std::fill_n(rows_ + i * all_ld_, width_, T{0});
    in_rows_ = own_;
    lane_product(d_part, all_ld_, d, tile_rows, 1, rows_, all_ld_, count, all_ld_, rows.rows, true);
  });
  if (others() == 0) return;
  lane_product(d_q_lanes + width_ * tile_rows, tile_rows, k + keys.first * all_width_ + width_, 1, all_width_, d_score,
               tile_rows, others(), rows.lanes, keys.keys, true);
}

template <class T>
void Moves<T>::close_gradient(const RowTile& rows, T* d_q_lanes, const MoveOperands<T*>& sums) {
  if (carried_ < 0) return;
  carry(rows, own_ - 1, sums);
  std::copy_n(d_lanes_, width_ * tile_rows, d_q_lanes);
}

template <class T>
void Moves<T>::carry(const RowTile& rows, std::int64_t block, const MoveOperands<T*>& sums) {
  if (carried_ < 0) {
    std::fill_n(d_lanes_, width_ * tile_rows, T{0});
    carried_ = block;
  }
  while (carried_ < block) carry_through(rows, ++carried_, sums);
}

template <class T>
void Moves<T>::carry_through(const RowTile& rows, std::int64_t block, const MoveOperands<T*>& sums) {
  if (!product_) {
    if (sums.factor != nullptr)
      add_products_of_channels(sums.factor + block * ld_, d_lanes_, at(block), width_, rows.rows);
    scale_channels(d_lanes_, d_lanes_, factor_ + block * width_, width_);
    return;
  }
  const std::int64_t first = block * block_;
  transpose_to_rows(d_rows_, ld_, d_lanes_, width_);
  for (std::int64_t i = 0; i < tile_rows; ++i) std::fill(d_rows_ + i * ld_ + width_, d_rows_ + (i + 1) * ld_, T{0});
  lane_product(sums.taken + first * ld_, ld_, read_off(block), tile_rows, 1, d_rows_, ld_, block_, ld_, rows.rows,
               true);
  lane_product(d_read_off_, tile_rows, taken_ + first * width_, width_, 1, d_lanes_, tile_rows, block_, rows.lanes,
               width_, false);
  scale_tile(d_read_off_, T{-1}, block_, rows.lanes);
  put_in_rows(block);
  lane_product(sums.read + first * ld_, ld_, d_read_off_, tile_rows, 1, rows_, all_ld_, block_, ld_, rows.rows, true);
  T* const d_more = d_rows_;  // what was in it is used
  lane_product(d_more, tile_rows, read_ + first * width_, 1, width_, d_read_off_, tile_rows, width_, rows.lanes, block_,
               false);
  add_tile(d_lanes_, d_more, T{1}, width_, rows.lanes);
}

template class Moves<float>;
template class Moves<double>;

}  // namespace tally::cpu

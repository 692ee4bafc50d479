// Tiled attention on the CPU: no matrix of T x K numbers is ever stored.
//
//   s_ij = scale q_i.k_j,  l_ij = s_ij + the terms of scan and biases,  a_ij = softmax over j <= i,  o_i = sum_j a_ij
//   v_j
//
// Forward takes the key tiles of a row tile from the diagonal to the left, with the softmax's running maximum m and sum
// n:
//   m' = max(m, max_j l_ij),  n' = n e^(m-m') + sum_j e^(l_ij - m'),  o' = o e^(m-m') + sum_j e^(l_ij - m') v_j
// and keeps m and 1/n a row (their joint logarithm would cost digits of every weight) and, with a scan, the running
// sums at every tile's right edge. (Milakov and Gimelshein 2018, arXiv 1805.02867; FlashAttention, arXiv 2205.14135;
// sums along the keys: core/cpu/attention_contextual.cpp.) Backward has the weights again as e^(l - m) / n, takes the
// key tiles from left to right, and adds up
//   dv_j = sum_i a_ij do_i,  da_ij = do_i.v_j,  dl_ij = a_ij (da_ij - do_i.o_i),  dq_i = scale sum_j ds_ij k_j,
//   dk_j = scale sum_i ds_ij q_i
//
// One piece of work is a share of the row tiles of one head; heads are divided where there are few of them, by shape
// alone, and what the shares of a head have in common is added in fixed order: the same bits for any number of threads.
// A tile whose weights are all negligible beside what its rows already hold is left out (steep biases, FoX).
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "core/cpu/attention_shapes.hpp"
#include "core/cpu/attention_softmax.hpp"
#include "core/kernels.hpp"
#include "core/math.hpp"

namespace tally::cpu {

bool skips_tiles() {
  static const char* const wish = std::getenv("TALLY_SKIP_TILES");
  return wish == nullptr || std::string_view(wish) != "0";
}

namespace {

// A share of the row tiles of one head: tiles share, share + shares, ...
struct Piece {
  std::int64_t batch, head, share;
};

// Pieces are as long as heads are where these are many: then a head's keys are packed once.
std::int64_t shares_of_head(const AttentionCall& call) {
  constexpr std::int64_t pieces = 16, least_tiles = 4;
  const std::int64_t tiles = (call.queries() + tile_rows - 1) / tile_rows;
  const std::int64_t wanted = (pieces + call.batch() * call.heads() - 1) / (call.batch() * call.heads());
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, tiles / least_tiles));
}

std::int64_t key_tiles_before(std::int64_t keys) { return (keys + tile_keys - 1) / tile_keys; }

// Where the running sums of a row tile begin: those of the tiles before it come first.
std::int64_t carry_offset(const AttentionCall& call, const RowTile& rows) {
  const std::int64_t row_tiles = (call.queries() + tile_rows - 1) / tile_rows;
  const std::int64_t head = rows.batch * call.heads() + rows.head;
  return (head * row_tiles + rows.first / tile_rows) * key_tiles_before(call.keys()) * tile_rows;
}

template <class T>
double largest_norm(const T* x, std::int64_t ld, std::int64_t rows, std::int64_t width) {
  double largest = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    double square = 0;
    for (std::int64_t c = 0; c < width; ++c)
      square += static_cast<double>(x[i * ld + c]) * static_cast<double>(x[i * ld + c]);
    largest = std::max(largest, square);
  }
  return std::sqrt(largest);
}

// The sums of one piece over its rows, by key.
template <class T>
struct KeyGradients {
  T *k, *v, *gate_key;  // [K, widths rounded up to whole vectors]
};

// What one thread works with.
template <class T>
class Worker {
 public:
  Worker(const AttentionCall& call, const AttentionGradients* gradients)
      : call_(call),
        gradients_(gradients),
        width_(call.q.shape[3]),
        value_width_(call.v.shape[3]),
        ld_(round_up(width_, vector_lanes<T>)),
        value_ld_(round_up(value_width_, vector_lanes<T>)),
        contextual_(ContextualTile<T>::make(call, gradients)),
        k_(call.keys() * width_),
        v_(call.keys() * value_width_),
        key_norm_(key_tiles_before(call.keys())),
        q_rows_(tile_rows * ld_),
        q_lanes_(tile_rows * width_),
        out_lanes_(tile_rows * value_width_),
        score_(tile_keys * tile_rows),
        rest_rows_(call.scan.remainder ? tile_rows * value_ld_ : 0),
        d_score_(gradients != nullptr ? tile_keys * tile_rows : 0),
        d_out_rows_(gradients != nullptr ? tile_rows * value_ld_ : 0),
        d_q_lanes_(gradients != nullptr ? tile_rows * width_ : 0),
        mask_(call.dropout > 0 ? tile_keys * tile_rows : 0),
        kept_weight_(call.dropout > 0 && gradients != nullptr ? tile_keys * tile_rows : 0) {
    if (call.scan.kind == AttentionScan::Kind::stick_breaking) stick_.emplace(call, gradients != nullptr);
    for (int n = 0; n < call.bias_count; ++n) {
      biases_.push_back(
          BiasTile<T>::make(call, call.biases[n], gradients != nullptr ? gradients->biases + n : nullptr));
    }
  }

  std::int64_t key_gradient_count() const { return call_.keys() * (ld_ + value_ld_ + gate_width()); }
  KeyGradients<T> key_gradients(T* memory) const {
    return {memory, memory + call_.keys() * ld_, memory + call_.keys() * (ld_ + value_ld_)};
  }
  std::int64_t shared_count() const {
    std::int64_t count = contextual_ != nullptr ? contextual_->shared_count() : 0;
    for (const auto& bias : biases_) count += bias->shared_count();
    return count;
  }

  void forward(const Piece& piece) {
    open_head(piece, nullptr, nullptr);
    for_each_row_tile(piece, [&](const RowTile& rows) { forward_rows(rows); });
  }
  void backward(const Piece& piece, T* key_gradients_memory, double* shared) {
    std::fill_n(key_gradients_memory, key_gradient_count(), T{0});
    const KeyGradients<T> sums = key_gradients(key_gradients_memory);
    open_head(piece, sums.gate_key, shared);
    for_each_row_tile(piece, [&](const RowTile& rows) { backward_rows(rows, sums); });
  }
  // The gradients of a head's keys, from those of its shares.
  void write_key_gradients(std::int64_t batch, std::int64_t head, const T* shares, std::int64_t count) const {
    constexpr std::int64_t most = 256;  // columns at a time
    alignas(64) T sum[most];
    const std::int64_t step = key_gradient_count();
    const auto write = [&](const View& d, std::int64_t begin, std::int64_t ld) {
      if (!d) return;
      const Matrix<T> target(d, batch, head);
      const std::int64_t width = d.shape[3];
      for (std::int64_t j = 0; j < call_.keys(); ++j) {
        for (std::int64_t first = 0; first < width; first += most) {
          const std::int64_t columns = std::min(most, width - first);
          const T* const row = shares + begin + j * ld + first;
          std::copy_n(row, columns, sum);
          for (std::int64_t share = 1; share < count; ++share) {
            for (std::int64_t c = 0; c < columns; ++c) sum[c] += row[share * step + c];
          }
          T* const written = &target.at(j, first);
          for (std::int64_t c = 0; c < columns; ++c) written[c * target.column_step] = sum[c];
        }
      }
    };
    write(gradients_->d_k, 0, ld_);
    write(gradients_->d_v, call_.keys() * ld_, value_ld_);
    write(gradients_->d_gate_key, call_.keys() * (ld_ + value_ld_), gate_width());
  }
  void write_shared(SharedSums sums) const {
    if (contextual_ != nullptr) {
      contextual_->write_shared(sums);
      sums.data += contextual_->shared_count();
    }
    for (const auto& bias : biases_) {
      bias->write_shared(sums);
      sums.data += bias->shared_count();
    }
  }

 private:
  std::int64_t gate_width() const { return contextual_ != nullptr ? contextual_->gate_width() : 0; }
  T* carry() { return contextual_ != nullptr ? contextual_->carry() : stick_ ? stick_->carry() : nullptr; }

  template <class F>
  void for_each_row_tile(const Piece& piece, F&& f) {
    const std::int64_t step = shares_of_head(call_) * tile_rows;
    for (std::int64_t first = piece.share * tile_rows; first < call_.queries(); first += step) {
      const std::int64_t rows = std::min(tile_rows, call_.queries() - first);
      f(RowTile{piece.batch, piece.head, first, call_.keys() - call_.queries() + first, rows,
                round_up(rows, lane_step)});
    }
  }
  std::int64_t visible_keys(const RowTile& rows) const { return rows.place + rows.rows; }
  KeyTile key_tile(const RowTile& rows, std::int64_t tile) const {
    return {tile * tile_keys, std::min(tile_keys, visible_keys(rows) - tile * tile_keys)};
  }

  void open_head(const Piece& piece, T* d_gate_key, double* shared) {
    pack_rows(k_.data(), width_, Matrix<T>(call_.k, piece.batch, piece.head), 0, call_.keys(), width_, T{1},
              call_.keys());
    pack_rows(v_.data(), value_width_, Matrix<T>(call_.v, piece.batch, piece.head), 0, call_.keys(), value_width_, T{1},
              call_.keys());
    if (contextual_ != nullptr) {
      contextual_->open_head(piece.batch, piece.head, d_gate_key, shared);
      shared += shared != nullptr ? contextual_->shared_count() : 0;
    }
    for (const auto& bias : biases_) {
      bias->open_head(piece.batch, piece.head, shared);
      shared += shared != nullptr ? bias->shared_count() : 0;
    }
    if (!may_skip()) return;
    for (std::int64_t tile = 0; tile < key_tiles_before(call_.keys()); ++tile) {
      const std::int64_t first = tile * tile_keys;
      key_norm_[tile] =
          largest_norm(k_.data() + first * width_, width_, std::min(tile_keys, call_.keys() - first), width_);
    }
  }

  void open_rows(const RowTile& rows) {
    pack_rows(q_rows_.data(), ld_, Matrix<T>(call_.q, rows.batch, rows.head), rows.first, rows.rows, width_,
              static_cast<T>(call_.scale), tile_rows);
    transpose_to_lanes(q_lanes_.data(), q_rows_.data(), ld_, width_);
    if (contextual_ != nullptr) contextual_->open_rows(rows);
    if (stick_) stick_->open_rows();
    for (const auto& bias : biases_) bias->open_rows(rows);
    if (may_skip()) row_norm_ = largest_norm(q_rows_.data(), ld_, rows.rows, width_);
    if (call_.scan.remainder) {
      pack_rows(rest_rows_.data(), value_ld_, Matrix<T>(call_.scan.remainder, rows.batch, rows.head), rows.first,
                rows.rows, value_width_, T{1}, tile_rows);
    }
  }

  bool may_skip() const { return skips_tiles() && call_.scan.kind == AttentionScan::Kind::none && !biases_.empty(); }
  // Whether every weight of the tile is negligible beside those of logit m in its row.
  bool negligible(const RowTile& rows, const KeyTile& keys, std::int64_t tile) const {
    if (!may_skip() || keys.on_diagonal(rows)) return false;
    double bound = row_norm_ * key_norm_[tile];
    for (const auto& bias : biases_) bound += bias->upper_bound(rows, keys);
    const double least = static_cast<double>(*std::min_element(m_, m_ + rows.rows));
    return bound < least - static_cast<double>(negligible_exponent<T>) - std::log(static_cast<double>(call_.keys()));
  }

  // score_ = the logits of the tile.
  void compute_logits(const RowTile& rows, const KeyTile& keys, bool for_gradient) {
    lane_product(score_.data(), tile_rows, k_.data() + keys.first * width_, width_, 1, q_lanes_.data(), tile_rows,
                 keys.keys, rows.lanes, width_, false);
    if (contextual_ != nullptr) contextual_->add(rows, keys, score_.data(), for_gradient);
    for (const auto& bias : biases_) bias->add(rows, keys, score_.data());
    if (!stick_ && keys.on_diagonal(rows)) hide(score_.data(), std::numeric_limits<T>::lowest(), rows, keys);
  }

  // y = the weights after dropout, with the mask in mask_. Returns false, and leaves y alone, where nothing is dropped.
  bool drop(const RowTile& rows, const KeyTile& keys, T* y, const T* weights) {
    if (call_.dropout == 0) return false;
    const std::int64_t row = (rows.batch * call_.heads() + rows.head) * call_.queries() + rows.first;
    draw_dropout(mask_.data(), call_.dropout_stream.now(), call_.dropout,
                 static_cast<std::uint64_t>(row * call_.keys() + keys.first), static_cast<std::uint64_t>(call_.keys()),
                 keys.keys, rows.lanes);
    apply_dropout(y, weights, mask_.data(), keys.keys, rows.lanes);
    return true;
  }

  void forward_rows(const RowTile& rows) {
    open_rows(rows);
    std::fill_n(out_lanes_.data(), tile_rows * value_width_, T{0});
    std::fill_n(m_, tile_rows, std::numeric_limits<T>::lowest());
    std::fill_n(sum_, tile_rows, T{0});
    T* const kept = call_.carry ? call_.carry.as<T>() + carry_offset(call_, rows) : nullptr;
    for (std::int64_t tile = key_tiles_before(visible_keys(rows)) - 1; tile >= 0; --tile) {
      const KeyTile keys = key_tile(rows, tile);
      if (kept != nullptr) std::copy_n(carry(), tile_rows, kept + tile * tile_rows);
      if (stick_ && stick_->used_up(rows)) continue;
      if (negligible(rows, keys, tile)) continue;
      compute_logits(rows, keys, false);
      if (stick_) {
        stick_->weights(rows, keys, score_.data(), false);
      } else if (advance_softmax(score_.data(), m_, sum_, factor_, keys.keys, rows.lanes)) {
        scale_lanes(out_lanes_.data(), factor_, value_width_, rows.lanes);
      }
      drop(rows, keys, score_.data(), score_.data());
      lane_product(out_lanes_.data(), tile_rows, v_.data() + keys.first * value_width_, 1, value_width_, score_.data(),
                   tile_rows, value_width_, rows.lanes, keys.keys, true);
    }
    write_rows(rows);
  }

  void write_rows(const RowTile& rows) {
    T* const stat = row_stat(rows);
    if (!stick_) {
      for (std::int64_t i = 0; i < rows.rows; ++i) {
        factor_[i] = T{1} / sum_[i];
        stat[2 * i] = m_[i];
        stat[2 * i + 1] = factor_[i];
      }
      scale_lanes(out_lanes_.data(), factor_, value_width_, rows.lanes);
    } else {
      for (std::int64_t i = 0; i < rows.rows; ++i) {
        stat[2 * i] = stick_->carry()[i];
        stat[2 * i + 1] = math::exp(-stat[2 * i]);
      }
      if (call_.scan.remainder) {
        for (std::int64_t i = 0; i < rows.rows; ++i) {
          const T rest = stat[2 * i + 1];
          for (std::int64_t c = 0; c < value_width_; ++c)
            out_lanes_[c * tile_rows + i] += rest * rest_rows_[i * value_ld_ + c];
        }
      }
    }
    unpack_lanes(Matrix<T>(call_.output, rows.batch, rows.head), rows.first, rows.rows, value_width_, out_lanes_.data(),
                 T{1});
  }

  T* row_stat(const RowTile& rows) const {
    return call_.row_stat.as<T>() + 2 * ((rows.batch * call_.heads() + rows.head) * call_.queries() + rows.first);
  }

  void backward_rows(const RowTile& rows, const KeyGradients<T>& sums) {
    open_rows(rows);
    open_gradient(rows);
    std::fill_n(d_q_lanes_.data(), tile_rows * width_, T{0});
    const T* const kept = call_.carry ? call_.carry.as<T>() + carry_offset(call_, rows) : nullptr;
    const std::int64_t tiles = key_tiles_before(visible_keys(rows));
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const KeyTile keys = key_tile(rows, tile);
      if (kept != nullptr) std::copy_n(kept + tile * tile_rows, tile_rows, carry());
      if (stick_ && stick_->used_up(rows)) continue;
      if (negligible(rows, keys, tile)) continue;
      compute_logits(rows, keys, true);
      if (stick_) {
        stick_->weights(rows, keys, score_.data(), true);
      } else {
        softmax_weights(score_.data(), m_, sum_, keys.keys, rows.lanes);
      }
      const bool dropped = drop(rows, keys, kept_weight_.data(), score_.data());
      lane_product(sums.v + keys.first * value_ld_, value_ld_, dropped ? kept_weight_.data() : score_.data(), tile_rows,
                   1, d_out_rows_.data(), value_ld_, keys.keys, value_ld_, rows.rows, true);
      lane_product(d_score_.data(), tile_rows, v_.data() + keys.first * value_width_, value_width_, 1,
                   out_lanes_.data(), tile_rows, keys.keys, rows.lanes, value_width_, false);
      if (dropped) apply_dropout(d_score_.data(), d_score_.data(), mask_.data(), keys.keys, rows.lanes);
      if (stick_) {
        stick_->gradient(rows, keys, score_.data(), factor_, d_score_.data());
      } else {
        softmax_gradient(d_score_.data(), score_.data(), factor_, keys.keys, rows.lanes);
      }
      for (const auto& bias : biases_) bias->gradient(rows, keys, d_score_.data());
      if (contextual_ != nullptr) contextual_->gradient(rows, keys, score_.data(), d_score_.data());
      lane_product(d_q_lanes_.data(), tile_rows, k_.data() + keys.first * width_, 1, width_, d_score_.data(), tile_rows,
                   width_, rows.lanes, keys.keys, true);
      lane_product(sums.k + keys.first * ld_, ld_, d_score_.data(), tile_rows, 1, q_rows_.data(), ld_, keys.keys, ld_,
                   rows.rows, true);
    }
    if (gradients_->d_q) {
      unpack_lanes(Matrix<T>(gradients_->d_q, rows.batch, rows.head), rows.first, rows.rows, width_, d_q_lanes_.data(),
                   static_cast<T>(call_.scale));
    }
    if (contextual_ != nullptr) contextual_->close_rows(rows);
    for (const auto& bias : biases_) bias->close_rows(rows);
  }

  // d_output by rows and by lanes (in out_lanes_), m and 1/n of the softmax in m_ and sum_, and in factor_ what each
  // weight's gradient is compared with: do.o, or the gradient of what remains of the stick.
  void open_gradient(const RowTile& rows) {
    const T* const stat = row_stat(rows);
    // Lanes without a query have weight 0, whatever their logits are: e^l alone may overflow, and 0 inf is no number.
    std::fill_n(m_, tile_rows, std::numeric_limits<T>::max());
    std::fill_n(sum_, tile_rows, T{0});
    std::fill_n(factor_, tile_rows, T{0});
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      m_[i] = stat[2 * i];
      sum_[i] = stat[2 * i + 1];
    }
    pack_rows(d_out_rows_.data(), value_ld_, Matrix<T>(gradients_->d_output, rows.batch, rows.head), rows.first,
              rows.rows, value_width_, T{1}, tile_rows);
    transpose_to_lanes(out_lanes_.data(), d_out_rows_.data(), value_ld_, value_width_);
    const Matrix<T> output(call_.output, rows.batch, rows.head);
    for (std::int64_t i = 0; i < rows.rows && (!stick_ || call_.scan.remainder); ++i) {
      double product = 0;
      for (std::int64_t c = 0; c < value_width_; ++c) {
        const T other = stick_ ? rest_rows_[i * value_ld_ + c] : output.at(rows.first + i, c);
        product += static_cast<double>(d_out_rows_[i * value_ld_ + c]) * static_cast<double>(other);
      }
      factor_[i] = static_cast<T>(product);
    }
    if (!gradients_->d_remainder) return;
    const Matrix<T> d_remainder(gradients_->d_remainder, rows.batch, rows.head);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const T rest = stat[2 * i + 1];
      for (std::int64_t c = 0; c < value_width_; ++c)
        d_remainder.at(rows.first + i, c) = rest * d_out_rows_[i * value_ld_ + c];
    }
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t width_, value_width_;  // d, e
  std::int64_t ld_, value_ld_;        // rounded up to whole vectors
  std::unique_ptr<ContextualTile<T>> contextual_;
  std::optional<StickTile<T>> stick_;
  std::vector<std::unique_ptr<BiasTile<T>>> biases_;

  // Of the head: [K, d], [K, e], the largest norm of k in each tile.
  Buffer<T> k_, v_;
  Buffer<double> key_norm_;
  // Of the row tile; _rows [tile_rows, ld], _lanes [width, tile_rows]. q is scaled.
  Buffer<T> q_rows_, q_lanes_, out_lanes_;
  double row_norm_ = 0;
  alignas(64) T m_[tile_rows];
  alignas(64) T sum_[tile_rows];
  alignas(64) T factor_[tile_rows];
  // Of the tile [tile_keys, tile_rows]: scores, logits, weights one after the other.
  Buffer<T> score_;
  Buffer<T> rest_rows_;
  Buffer<T> d_score_, d_out_rows_, d_q_lanes_;
  Buffer<T> mask_, kept_weight_;  // of the tile, with dropout
};

template <class T>
std::vector<std::unique_ptr<Worker<T>>> make_workers(const AttentionCall& call, const AttentionGradients* gradients) {
  std::vector<std::unique_ptr<Worker<T>>> workers;
  for (int n = 0; n < thread_count(); ++n) workers.push_back(std::make_unique<Worker<T>>(call, gradients));
  return workers;
}

Piece piece_at(const AttentionCall& call, std::int64_t shares, std::int64_t index) {
  return {index / shares / call.heads(), index / shares % call.heads(), index % shares};
}

template <class T>
void forward(const AttentionCall& call) {
  const std::int64_t shares = shares_of_head(call);
  const auto workers = make_workers<T>(call, nullptr);
  parallel_for(call.batch() * call.heads() * shares, [&](std::int64_t index) {
    workers[static_cast<std::size_t>(omp_get_thread_num())]->forward(piece_at(call, shares, index));
  });
}

template <class T>
void backward(const AttentionCall& call, const AttentionGradients& gradients) {
  const std::int64_t shares = shares_of_head(call), heads = call.batch() * call.heads();
  const auto workers = make_workers<T>(call, &gradients);
  const Worker<T>& any = *workers.front();

  // A head that is not divided needs its sums only until they are written.
  const std::int64_t count = any.key_gradient_count();
  const Buffer<T> key_gradients(count * (shares > 1 ? heads * shares : thread_count()));
  const std::int64_t shared_count = any.shared_count();
  const Buffer<double> shared(shared_count * heads * shares);
  std::fill_n(shared.data(), shared_count * heads * shares, 0.0);

  parallel_for(heads * shares, [&](std::int64_t index) {
    const std::int64_t thread = omp_get_thread_num();
    Worker<T>& worker = *workers[static_cast<std::size_t>(thread)];
    const Piece piece = piece_at(call, shares, index);
    T* const sums = key_gradients.data() + (shares > 1 ? index : thread) * count;
    worker.backward(piece, sums, shared.data() + index * shared_count);
    if (shares == 1) worker.write_key_gradients(piece.batch, piece.head, sums, 1);
  });
  if (shares > 1) {
    parallel_for(heads, [&](std::int64_t head) {
      any.write_key_gradients(head / call.heads(), head % call.heads(), key_gradients.data() + head * shares * count,
                              shares);
    });
  }
  any.write_shared({shared.data(), shared_count, call.batch(), call.heads(), shares});
}

}  // namespace

std::int64_t attention_carry(std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  return heads * ((queries + tile_rows - 1) / tile_rows) * key_tiles_before(keys) * tile_rows;
}

void attention(const AttentionCall& call) {
  if (call.output.numel() == 0) return;
  dispatch_floating(call.q.dtype, [&](auto zero) { forward<decltype(zero)>(call); });
}

void attention_backward(const AttentionCall& call, const AttentionGradients& gradients) {
  if (call.output.numel() == 0) return;
  dispatch_floating(call.q.dtype, [&](auto zero) { backward<decltype(zero)>(call, gradients); });
}

}  // namespace tally::cpu

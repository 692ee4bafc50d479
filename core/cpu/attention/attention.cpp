// Fused attention on the CPU: no matrix of T x K numbers is ever stored.
//
//   s_ij = scale q_i.k_j,  l_ij = s_ij + the terms of the score modification and the biases,  a_ij = softmax over the
//   unmasked keys of i, o_i = sum_j a_ij v_j.
//
// Forward takes the key tiles of a row tile from the diagonal to the left, with a running maximum m and sum n:
//   m' = max(m, max_j l_ij),  n' = n e^(m-m') + sum_j e^(l_ij - m'),  o' = o e^(m-m') + sum_j e^(l_ij - m') v_j.
// It saves m and 1/n of every row, because their joint logarithm would cost digits of every weight. With a score
// modification it also saves the running sums at every tile's right edge. (Milakov and Gimelshein 2018, arXiv
// 1805.02867; FlashAttention, arXiv 2205.14135; running sums: core/cpu/attention/score_mod_loops.hpp; other rules than
// the softmax, and the leftover mass: core/cpu/attention/softmax.hpp.)
//
// Backward recomputes the weights as e^(l - m) / n and takes the key tiles from left to right:
//   dv_j = sum_i a_ij do_i,  da_ij = do_i.v_j,  dl_ij = a_ij (da_ij - do_i.o_i).
//   dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i.
//
// A chunk of work is one head of keys with the query heads that share it. If heads are few, a chunk has some of these
// query heads or a share of their row tiles. The division depends only on shapes. Sums within a chunk are formed in the
// order of its heads, and sums over chunks afterwards in a fixed order: the bits are the same for any number of
// threads. A tile is skipped if its weights are negligible compared with those already in its rows (steep biases, FoX).
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>

#include "core/cpu/attention/bias.hpp"
#include "core/cpu/attention/distance_bias.hpp"
#include "core/cpu/attention/products.hpp"
#include "core/cpu/attention/score_mod.hpp"
#include "core/cpu/attention/softmax.hpp"
#include "core/device/kernels.hpp"
#include "core/math/math.hpp"

namespace tally::cpu {

bool skips_tiles() {
  static const char* const wish = std::getenv("TALLY_SKIP_TILES");
  return wish == nullptr || std::string_view(wish) != "0";
}

thread_local TileCounts* counted_tiles = nullptr;

namespace {

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

// The state of one thread.
template <class T>
class Worker {
 public:
  Worker(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        width_(call.q.shape[3]),
        value_width_(call.v.shape[3]),
        ld_(round_up(width_, vector_lanes<T>)),
        value_ld_(round_up(value_width_, vector_lanes<T>)),
        score_mod_(call.score_mod.mod != nullptr ? arena.make<ScoreModTile<T>>(call, gradients) : nullptr),
        distance_(call, gradients, arena),
        softmax_(call, gradients, arena),
        biases_(arena.take<BiasTile<T>*>(std::ssize(call.biases))),
        of_k_(call.k, call.keys(),
              {.factor = call.scale,
               .by_keys = gradients != nullptr,
               .by_rows = gradients != nullptr,
               .reads_x = may_skip()},
              arena),
        of_v_(call.v, call.keys(),
              {.pairs = gradients != nullptr, .by_keys = gradients == nullptr, .by_rows = gradients != nullptr}, arena),
        key_norm_(arena.take<double>(tiles_of(call.keys(), tile_keys))),
        rest_rows_(arena.take<T>(call.softmax_rule.rest ? tile_rows * value_ld_ : 0)),
        score_(arena.take<T>(tile_keys * tile_rows)),
        mask_(arena.take<T>(call.dropout > 0 ? tile_keys * tile_rows : 0)) {
    for (std::size_t n = 0; n < bias_count(); ++n) {
      BiasTile<T>* const tile =
          make_bias_tile<T>(call, call.biases[n], gradients != nullptr ? &gradients->biases[n] : nullptr, arena);
      if (tile != nullptr) biases_[n] = tile;
    }
    if (gradients == nullptr) {
      output_lanes_ = arena.take<T>(tile_rows * value_width_);
      rounded_rows_ = arena.take<T>(call.output.dtype == DType::bf16 ? tile_rows * value_width_ : 0);
      return;
    }
    d_q_lanes_ = arena.take<T>(tile_rows * width_);
    rounded_rows_ = arena.take<T>(gradients->q && gradients->q.dtype == DType::bf16 ? tile_rows * width_ : 0);
    d_score_ = arena.take<T>(tile_keys * tile_rows);
    dropped_weight_ = arena.take<T>(call.dropout > 0 ? tile_keys * tile_rows : 0);
  }

  void forward(const WorkItem& chunk) {
    const Bf16Scope in_bf16(multiplies_bf16(call_));
    open_keys(chunk);
    for (std::int64_t head = chunk.first_head; head < chunk.end_head; ++head) {
      open_head(chunk.batch, head, nullptr, nullptr);
      for_each_row_tile(chunk, head, [&](const RowTile& rows) { forward_rows(rows); });
    }
  }
  // key_memory: KeyAccumulators::count elements.
  void backward(const WorkItem& chunk, T* key_memory, const SharedSums& shared) {
    const Bf16Scope in_bf16(multiplies_bf16(call_));
    const KeyAccumulators<T> sums(call_, key_memory);
    std::fill_n(key_memory, sums.count, T{0});
    open_keys(chunk);
    for (std::int64_t head = chunk.first_head; head < chunk.end_head; ++head) {
      open_head(chunk.batch, head, sums.score_mod.gate_key, shared.at(chunk.batch, head, chunk.share));
      for_each_row_tile(chunk, head, [&](const RowTile& rows) { backward_rows(rows, sums); });
    }
  }
  // Writes the gradients of a head of keys from the sums of `count` chunks.
  void write_key_gradients(std::int64_t batch, std::int64_t key_head, T* chunks, std::int64_t count) const {
    const KeyAccumulators<T> first(call_, chunks);
    const auto write = [&](const OperandRule& rule, const View& d, T* const& sums) {
      if (rule.is_of_keys() && d) write_key_sums(d, batch, key_head, sums, first.count, count);
    };
    for_each_operand(write, *gradients_, first);
  }
  const TileCounts& tiles() const { return tiles_; }

 private:
  std::size_t bias_count() const { return call_.biases.size(); }
  std::span<BiasTile<T>* const> biases() const { return {biases_, bias_count()}; }

  template <class F>
  void for_each_row_tile(const WorkItem& chunk, std::int64_t head, F&& f) {
    const std::int64_t shares = divide(call_).shares;
    for (std::int64_t tile = chunk.share; tile < tiles_of(call_.queries(), tile_rows); tile += shares) {
      const std::int64_t first = tile * tile_rows;
      const std::int64_t rows = std::min(tile_rows, call_.queries() - first);
      f(RowTile{chunk.batch, head, first, call_.keys() - call_.queries() + first, rows, round_up(rows, lane_step),
                call_.mask});
    }
  }
  // The saved running sums of the rows at the right edge of a key tile; null if none are saved.
  T* checkpoint(const RowTile& rows, std::int64_t key_tile) const {
    if (!call_.scan_checkpoints) return nullptr;
    const std::int64_t head = rows.batch * call_.heads() + rows.head;
    return call_.scan_checkpoints.as<T>() + checkpoint_at(call_, head, rows.first / tile_rows, key_tile);
  }
  // Number of key tiles up to the last query's own key.
  static std::int64_t key_tiles(const RowTile& rows) { return tiles_of(rows.last_query() + 1, tile_keys); }
  // Without the keys at its left edge that are masked for all rows.
  KeyTile key_tile(const RowTile& rows, std::int64_t tile) const {
    const std::int64_t first = tile * tile_keys, end = std::min(first + tile_keys, rows.last_query() + 1);
    const std::int64_t unmasked = rows.mask.begin(rows.last_key);
    const std::int64_t begin = multiplies_bf16(call_) ? unmasked / bf16_keys * bf16_keys : unmasked;
    const bool trimmed = first >= rows.mask.first && first < begin && begin < end;
    return {trimmed ? begin : first, end - (trimmed ? begin : first)};
  }

  void open_keys(const WorkItem& chunk) {
    of_k_.open_keys(call_.k, chunk.batch, chunk.key_head);
    of_v_.open_keys(call_.v, chunk.batch, chunk.key_head);
    distance_.open_keys(chunk.batch, chunk.key_head);
    if (!may_skip()) return;
    for (std::int64_t first = 0; first < call_.keys(); first += tile_keys) {
      key_norm_[first / tile_keys] =
          largest_norm(of_k_.x() + first * width_, width_, std::min(tile_keys, call_.keys() - first), width_);
    }
  }

  void open_head(std::int64_t batch, std::int64_t head, T* d_gate_key, double* shared) {
    const AttentionProblem<double*> sums = SharedSums::by_operand(call_, shared);
    d_sink_ = sums.softmax_rule.sink;
    if (score_mod_ != nullptr) score_mod_->open_head(batch, head, d_gate_key, sums.score_mod.heads);
    for (std::size_t n = 0; n < bias_count(); ++n) biases_[n]->open_head(batch, head, sums.biases[n]);
  }

  void open_rows(const RowTile& rows) {
    of_k_.open_rows(call_.q, rows);
    if (score_mod_ != nullptr) score_mod_->open_rows(rows);
    distance_.open_rows(rows);
    for (BiasTile<T>* const bias : biases()) bias->open_rows(rows);
    if (may_skip()) row_norm_ = std::abs(of_k_.factor_after()) * largest_norm(of_k_.y_rows(), ld_, rows.rows, width_);
    if (call_.softmax_rule.rest) {
      pack_rows(rest_rows_, value_ld_, call_.softmax_rule.rest, rows.batch, rows.head, rows.first, rows.rows,
                value_width_, T{1}, tile_rows);
    }
  }

  // Whether the score modification reads the logits with their biases.
  bool modifies_biased() const { return score_mod_ != nullptr && call_.score_mod.mod->traits.after_biases; }
  bool may_skip() const {
    return skips_tiles() && call_.score_mod.mod == nullptr && bias_count() > 0 && !distance_.given() &&
           call_.softmax_rule.kind == SoftmaxRuleOperands<View>::Kind::softmax;
  }
  // Whether every weight of the tile is negligible compared with the largest weight of its row.
  bool negligible(const RowTile& rows, const KeyTile& keys, std::int64_t tile) {
    if (!may_skip() || !keys.unmasked_for_all(rows)) return false;
    double bound = row_norm_ * key_norm_[tile];
    for (BiasTile<T>* const bias : biases()) bound += bias->upper_bound(rows, keys);
    return bound < static_cast<double>(softmax_.least_shift(rows)) - static_cast<double>(negligible_exponent<T>) -
                       std::log(static_cast<double>(call_.keys()));
  }

  bool skips(const RowTile& rows, const KeyTile& keys, std::int64_t tile) {
    const bool leaves = (score_mod_ != nullptr && score_mod_->exhausted(rows)) || negligible(rows, keys, tile);
    ++(leaves ? tiles_.skipped : tiles_.computed);
    return leaves;
  }

  // score_ = the logits of the tile.
  void compute_logits(const RowTile& rows, const KeyTile& keys, bool for_gradient) {
    of_k_.pairs(rows, keys, score_);
    const bool last = modifies_biased();
    if (score_mod_ != nullptr && !last) score_mod_->add(rows, keys, score_, for_gradient);
    for (BiasTile<T>* const bias : biases()) bias->add(rows, keys, score_);
    if (distance_.given()) distance_.add(rows, keys, score_);
    if (last) score_mod_->add(rows, keys, score_, for_gradient);
    if (!keys.unmasked_for_all(rows)) apply_mask(score_, rows, keys);
    if (score_mod_ != nullptr && score_mod_->saturated()) ++tiles_.saturated;
  }

  // y = the weights after dropout, with the mask in mask_. Without dropout returns false and does not write y.
  bool drop(const RowTile& rows, const KeyTile& keys, T* y, const T* weights) {
    if (call_.dropout == 0) return false;
    const std::int64_t head = rows.batch * call_.heads() + rows.head, columns = call_.keys(),
                       row = head * call_.queries() + rows.first;
    draw_dropout(mask_, call_.dropout_stream.now(), call_.dropout,
                 static_cast<std::uint64_t>(row * columns + keys.first), static_cast<std::uint64_t>(columns), keys.keys,
                 rows.lanes);
    apply_dropout(y, weights, mask_, keys.keys, rows.lanes);
    return true;
  }

  void forward_rows(const RowTile& rows) {
    open_rows(rows);
    softmax_.open_rows(rows);
    std::fill_n(output_lanes_, tile_rows * value_width_, T{0});
    for (std::int64_t tile = key_tiles(rows) - 1; tile >= 0; --tile) {
      const KeyTile keys = key_tile(rows, tile);
      if (!keys.unmasked_for_any(rows)) continue;
      if (T* const saved = checkpoint(rows, tile); saved != nullptr) {
        std::copy_n(score_mod_->running_sums(), tile_rows, saved);
      }
      if (skips(rows, keys, tile)) continue;
      compute_logits(rows, keys, false);
      if (softmax_.advance(rows, keys, score_)) {
        scale_lanes(output_lanes_, softmax_.rescale(), value_width_, rows.lanes);
      }
      drop(rows, keys, score_, score_);
      of_v_.add_keys(rows, keys, output_lanes_, score_);
    }
    write_rows(rows);
  }

  void write_rows(const RowTile& rows) {
    softmax_.close_rows(rows, spends(call_) ? score_mod_->running_sums() : nullptr);
    scale_lanes(output_lanes_, softmax_.inverse(), value_width_, rows.lanes);
    for (std::int64_t i = 0; i < rows.rows && call_.softmax_rule.rest; ++i) {
      const T left = softmax_.leftover()[i];
      for (std::int64_t c = 0; c < value_width_; ++c) {
        output_lanes_[c * tile_rows + i] += left * rest_rows_[i * value_ld_ + c];
      }
    }
    unpack_lanes(call_.output, rows, value_width_, output_lanes_, T{1}, rounded_rows_);
  }

  void backward_rows(const RowTile& rows, const KeyAccumulators<T>& sums) {
    open_rows(rows);
    open_gradient(rows);
    std::fill_n(d_q_lanes_, tile_rows * width_, T{0});
    for (std::int64_t tile = 0; tile < key_tiles(rows); ++tile) {
      const KeyTile keys = key_tile(rows, tile);
      if (!keys.unmasked_for_any(rows)) continue;
      if (const T* const saved = checkpoint(rows, tile); saved != nullptr) {
        std::copy_n(saved, tile_rows, score_mod_->running_sums());
      }
      if (skips(rows, keys, tile)) continue;
      compute_logits(rows, keys, true);
      softmax_.weights(rows, keys, score_);
      const bool dropped = drop(rows, keys, dropped_weight_, score_);
      of_v_.add_rows(rows, keys, sums.v, dropped ? dropped_weight_ : score_);
      of_v_.pairs(rows, keys, d_score_);
      if (dropped) apply_dropout(d_score_, d_score_, mask_, keys.keys, rows.lanes);
      softmax_.gradient(rows, keys, d_score_, score_);
      const bool last = modifies_biased();
      if (last) score_mod_->gradient(rows, keys, score_, d_score_);
      for (BiasTile<T>* const bias : biases()) bias->gradient(rows, keys, d_score_);
      if (distance_.given()) distance_.gradient(rows, keys, d_score_);
      if (score_mod_ != nullptr && !last) score_mod_->gradient(rows, keys, score_, d_score_);
      of_k_.add_gradients(rows, keys, gradients_->q ? d_q_lanes_ : nullptr, gradients_->k ? sums.k : nullptr, d_score_);
    }
    QueryGradient<T> d_q{gradients_->q, d_q_lanes_, of_k_.gradient_factor()};
    softmax_.close_gradient(rows, d_sink_);
    if (score_mod_ != nullptr) score_mod_->close_rows(rows, softmax_.d_logit_sums());
    for (BiasTile<T>* const bias : biases()) bias->close_rows(rows);
    distance_.close_rows(rows, sums.distance.key, d_q);
    if (gradients_->q) unpack_lanes(d_q.view, rows, width_, d_q.lanes, d_q.factor, rounded_rows_);
  }

  // Passes d_output to the matmuls and the softmax rule, and writes the gradient of `rest`.
  void open_gradient(const RowTile& rows) {
    of_v_.open_rows(gradients_->d_output, rows);
    softmax_.open_gradient(rows, of_v_.y_rows(), call_.softmax_rule.rest ? rest_rows_ : nullptr, value_ld_,
                           value_width_);
    if (!gradients_->softmax_rule.rest) return;
    const Matrix<T> d_rest(gradients_->softmax_rule.rest, rows.batch, rows.head);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const T left = softmax_.leftover()[i];
      for (std::int64_t c = 0; c < value_width_; ++c)
        d_rest.at(rows.first + i, c) = left * of_v_.y_rows()[i * value_ld_ + c];
    }
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t width_, value_width_;  // d, e
  std::int64_t ld_, value_ld_;        // rounded up to whole vectors
  ScoreModTile<T>* score_mod_;
  DistanceProducts<T> distance_;
  SoftmaxTile<T> softmax_;
  BiasTile<T>** biases_;

  PairProducts<T> of_k_, of_v_;  // k and scale q, v and do
  double* key_norm_;             // the largest norm of k in each tile of the head of keys
  // For the row tile; _rows [tile_rows, ld], _lanes [width, tile_rows].
  T* rest_rows_;
  T* output_lanes_ = nullptr;  // forward
  T* rounded_rows_ = nullptr;  // scratch for bf16 results
  T* d_q_lanes_ = nullptr;     // backward
  double row_norm_ = 0;
  double* d_sink_ = nullptr;
  TileCounts tiles_;
  // For the tile [tile_keys, tile_rows].
  T* score_;  // first scores, then logits, then weights
  T* mask_;   // with dropout
  T *d_score_ = nullptr, *dropped_weight_ = nullptr;
};

// Workers for all threads, and their accumulators in backward.
template <class T>
class Team {
 public:
  Team(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        division_(divide(call)),
        threads_(thread_count()),
        key_heads_(call.batch() * key_heads(call)),
        key_count_(KeyAccumulators<T>(call, nullptr).count) {
    workers_ = arena.take<Worker<T>*>(threads_);
    for (int n = 0; n < threads_; ++n) {
      Worker<T>* const worker = arena.make<Worker<T>>(call, gradients);
      if (worker != nullptr) workers_[n] = worker;
    }
    if (gradients == nullptr) return;
    gradients_ = gradients;
    // Sums by key of a single chunk are needed until they are written, sums of several chunks until all are added up.
    key_gradients_ = arena.take<T>(key_count_ * (division_.chunks() == 1 ? threads_ : chunks()));
    shared_ = {nullptr, 0, call.batch(), call.heads(), division_.shares};
    for_each_operand([&](const OperandRule& rule, const View& x) { shared_.step += shared_count(rule, x); }, call);
    shared_.data = arena.take<double>(shared_.count());
  }

  void forward() const {
    parallel_for(chunks(), [&](std::int64_t index) { workers_[omp_get_thread_num()]->forward(chunk_at(index)); });
    report_tiles();
  }

  void backward() const {
    std::fill_n(shared_.data, shared_.count(), 0.0);
    const auto compute = [&](std::int64_t index, T* sums) {
      Worker<T>& worker = *workers_[omp_get_thread_num()];
      worker.backward(chunk_at(index), sums, shared_);
    };
    const Worker<T>& any = *workers_[0];
    const std::int64_t parts = division_.chunks(), all = chunks();
    const auto write = [&](std::int64_t key, T* sums) {
      any.write_key_gradients(key / key_heads(call_), key % key_heads(call_), sums, parts);
    };
    if (parts == 1) {
      parallel_for(all, [&](std::int64_t index) {
        T* const sums = key_gradients_ + omp_get_thread_num() * key_count_;
        compute(index, sums);
        write(index, sums);
      });
    } else {
      parallel_for(all, [&](std::int64_t index) { compute(index, key_gradients_ + index * key_count_); });
      parallel_for(key_heads_, [&](std::int64_t key) { write(key, key_gradients_ + key * parts * key_count_); });
    }
    write_shared();
    report_tiles();
  }

 private:
  void report_tiles() const {
    for (int n = 0; counted_tiles != nullptr && n < threads_; ++n) {
      const TileCounts& tiles = workers_[n]->tiles();
      counted_tiles->computed += tiles.computed;
      counted_tiles->saturated += tiles.saturated;
      counted_tiles->skipped += tiles.skipped;
    }
  }
  void write_shared() const {
    std::int64_t first = 0;
    const auto write = [&](const OperandRule& rule, const View& x, const View& d) {
      const std::int64_t count = shared_count(rule, x);
      const auto write_as = [&](auto zero) { shared_.write<decltype(zero)>(d, first, count); };
      if (count > 0 && d) dispatch_floating(d.dtype, write_as);
      first += count;
    };
    for_each_operand(write, call_, *gradients_);
  }
  std::int64_t chunks() const { return key_heads_ * division_.chunks(); }
  WorkItem chunk_at(std::int64_t index) const {
    const std::int64_t group = gqa_group_size(call_), ranges = division_.ranges;
    const std::int64_t range = index / division_.shares % ranges, key = index / division_.chunks();
    const std::int64_t key_head = key % key_heads(call_), first = key_head * group;
    return {key / key_heads(call_), key_head, first + range * group / ranges, first + (range + 1) * group / ranges,
            index % division_.shares};
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_ = nullptr;
  WorkPartition division_;
  int threads_;
  std::int64_t key_heads_, key_count_;
  Worker<T>** workers_;
  T* key_gradients_ = nullptr;
  SharedSums shared_;
};

// f(team) with the team's memory in `workspace`. Returns its bytes. If `workspace` is null, memory is only counted, and
// f must do nothing.
template <class F>
std::int64_t with_team(const AttentionCall& call, const AttentionGradients* gradients, void* workspace, const F& f) {
  Arena arena(workspace);
  if (call.output.numel() == 0) return 0;
  dispatch_floating(call.softmax_statistics.dtype, [&](auto zero) { f(Team<decltype(zero)>(call, gradients, arena)); });
  return arena.bytes();
}
constexpr auto only_count = [](const auto&) {};

}  // namespace

std::int64_t attention_prefix_sums(const AttentionCall& call) {
  return checkpoint_at(call, call.batch() * call.heads(), 0, 0);
}

std::int64_t attention_workspace(const AttentionCall& call) { return with_team(call, nullptr, nullptr, only_count); }
void attention(const AttentionCall& call, void* workspace) {
  with_team(call, nullptr, workspace, [](const auto& team) { team.forward(); });
}

std::int64_t attention_backward_workspace(const AttentionCall& call, const AttentionGradients& gradients) {
  return with_team(call, &gradients, nullptr, only_count);
}
void attention_backward(const AttentionCall& call, const AttentionGradients& gradients, void* workspace) {
  with_team(call, &gradients, workspace, [](const auto& team) { team.backward(); });
}

}  // namespace tally::cpu

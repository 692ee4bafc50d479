// The vectors of queries and keys of which a policy sums what it makes of each channel (core/attention/pair.hpp,
// needs.channels) on one tile, and their gradients. Only for core/cpu/attention_pair.cpp.
#pragma once

#include <algorithm>

#include "core/attention/heads.hpp"
#include "core/attention/pair.hpp"
#include "core/cpu/attention_pair_lanes.hpp"
#include "core/cpu/attention_shapes.hpp"

namespace tally::cpu {

template <class T>
class ChannelOperands {
 public:
  ChannelOperands(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        query_width_(width_of(call.scan.channel_query)),
        key_width_(width_of(call.scan.channel_key)),
        key_ld_(round_up(key_width_, vector_lanes<T>)),
        keys_(arena.take<T>(call.keys() * key_width_)),
        packed_(arena.take<T>(tile_rows * query_width_)),
        lanes_(arena.take<T>(tile_rows * query_width_)),
        d_lanes_(arena.take<T>(gradients != nullptr ? tile_rows * query_width_ : 0)),
        d_key_lanes_(arena.take<T>(gradients != nullptr ? key_width_ * vector_lanes<T> : 0)),
        kept_terms_(arena.take<T>(gradients != nullptr && given() ? tile_keys * tile_rows : 0)) {
    const ChannelNeeds& needs = call.scan.policy->needs.channels;
    if (given()) channels_ = needs.of_query > 0 ? query_width_ / needs.of_query : key_width_ / needs.of_key;
  }

  void open_head(std::int64_t batch, std::int64_t head, T* d_keys) {
    d_keys_ = d_keys;
    if (key_width_ == 0) return;
    pack_rows(keys_, key_width_, call_.scan.channel_key, batch, head / heads_of_key(call_), 0, call_.keys(), key_width_,
              T{1}, call_.keys());
  }
  void open_rows(const RowTile& rows) {
    if (query_width_ == 0) return;
    pack_rows(packed_, query_width_, call_.scan.channel_query, rows.batch, rows.head, rows.first, rows.rows,
              query_width_, T{1}, tile_rows);
    transpose_to_lanes(lanes_, packed_, query_width_, query_width_);
    if (gradients_ != nullptr) std::fill_n(d_lanes_, tile_rows * query_width_, T{0});
  }
  void close_rows(const RowTile& rows) const {
    if (query_width_ == 0 || !gradients_->scan.channel_query) return;
    unpack_lanes(Matrix<T>(gradients_->scan.channel_query, rows.batch, rows.head), rows.first, rows.rows, query_width_,
                 d_lanes_, T{1});
  }
  ChannelViews<T> views(const KeyTile& keys) const {
    return {lanes_,
            keys_ + keys.first * key_width_,
            call_.scan.channel_numbers.as<T>(),
            d_lanes_,
            d_keys_ != nullptr ? d_keys_ + keys.first * key_ld_ : nullptr,
            d_key_lanes_,
            kept_terms_,
            channels_,
            key_width_,
            key_ld_};
  }

 private:
  static std::int64_t width_of(const View& x) { return x ? x.shape[3] : 0; }
  bool given() const { return query_width_ + key_width_ > 0; }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t query_width_, key_width_, key_ld_, channels_ = 0;
  T *keys_, *packed_, *lanes_, *d_lanes_, *d_key_lanes_, *kept_terms_;
  T* d_keys_ = nullptr;
};

}  // namespace tally::cpu

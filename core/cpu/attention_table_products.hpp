// Tables of the rows of a tile that are products, z_i[n] = scale r_i.e_n, made where they are read: no row's table is
// kept. With knots the numbers of a row are their values and slopes in turns. Only for core/cpu/attention_pair.cpp.
#pragma once

#include "core/attention/heads.hpp"
#include "core/cpu/attention_products.hpp"
#include "core/cpu/attention_table.hpp"

namespace tally::cpu {

static_assert(sizeof(Entry<float>) == 2 * sizeof(float) && sizeof(Entry<double>) == 2 * sizeof(double));

// Of one thread.
template <class T>
class TableProducts {
 public:
  TableProducts(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena)
      : call_(call),
        gradients_(gradients),
        width_(given() ? call.scan.table_key.shape[3] : 0),
        products_(call.scan.table_key, given() ? entries() : 0,
                  {.factor = call.scan.table_scale, .by_keys = gradients != nullptr, .by_rows = gradients != nullptr},
                  arena),
        tile_(arena.take<T>(given() ? tile_keys * tile_rows : 0)),
        d_lanes_(arena.take<T>(gradients != nullptr ? tile_rows * width_ : 0)) {}

  bool given() const { return static_cast<bool>(call_.scan.table_key); }
  std::int64_t entries() const { return call_.scan.table_key.shape[2]; }

  void open_head(std::int64_t batch, std::int64_t head, T* d_key) {
    d_key_ = d_key;
    if (given()) products_.open_keys(call_.scan.table_key, batch, head / heads_of_key(call_), {0, entries()});
  }
  // values [tile_rows, ld] gets the first `count` entries of every row.
  void open_rows(const RowTile& rows, std::int64_t count, T* values, std::int64_t ld) {
    products_.open_rows(call_.scan.table_query, rows);
    for_each_tile(rows, count, [&](const RowTile& all, const KeyTile& entries) {
      products_.pairs(all, entries, tile_);
      transpose_to_rows(values + entries.first, ld, tile_, entries.keys);
    });
  }
  // From the gradient of those.
  void close_rows(const RowTile& rows, std::int64_t count, const T* d_values, std::int64_t ld, QueryGradient<T>& d_q) {
    const View& d_query = gradients_->scan.table_query;
    std::fill_n(d_lanes_, tile_rows * width_, T{0});
    for_each_tile(rows, count, [&](const RowTile& all, const KeyTile& entries) {
      transpose_to_lanes(tile_, d_values + entries.first, ld, entries.keys);
      products_.add_gradients(all, entries, d_query ? d_lanes_ : nullptr, gradients_->scan.table_key ? d_key_ : nullptr,
                              tile_);
    });
    if (d_query) d_q.take(d_query, rows, width_, d_lanes_, products_.gradient_factor());
  }

 private:
  template <class F>
  void for_each_tile(const RowTile& rows, std::int64_t count, const F& f) {
    const RowTile all = seeing_all(rows, entries());
    for (std::int64_t n = 0; n < count; n += tile_keys) f(all, KeyTile{n, std::min(tile_keys, count - n)});
  }

  const AttentionCall& call_;
  const AttentionGradients* gradients_;
  std::int64_t width_;
  PairProducts<T> products_;
  T *tile_, *d_lanes_;
  T* d_key_ = nullptr;
};

}  // namespace tally::cpu

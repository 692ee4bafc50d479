// Tiled attention backward by rows: 16 queries a warp, key tiles from left to right: d_q and all that a row owns, and
// for each key tile what its running sum of d_position was on its left edge. What all rows share (slopes, toeplitz
// biases, hidden layers) is written by row or block and added afterwards (cuda/attention_backward.cu).
#include "cuda/attention_gradient.hpp"
#include "cuda/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

namespace {

// Shared memory beside the products: [rows][pair_ld] each, those that are wanted.
template <class T>
struct PairTiles {
  T *d_scores, *d_gate_scores, *d_logits, *positions;

  __host__ __device__ static std::int64_t elements(const DeviceCall<T>& call, int rows) {
    return (1 + (call.own_gates ? 1 : 0) + (call.keeps_logits ? 1 : 0) + (call.keeps_positions ? 1 : 0)) *
           std::int64_t{rows} * pair_ld;
  }
  // Of the warp's rows.
  __device__ PairTiles(const DeviceCall<T>& call, T* memory, int warp) {
    const int size = block_rows() * pair_ld;
    d_scores = memory + warp * warp_rows * pair_ld;
    d_gate_scores = d_scores + (call.own_gates ? size : 0);
    d_logits = d_gate_scores + (call.keeps_logits ? size : 0);
    positions = d_logits + (call.keeps_positions ? size : 0);
  }
};

// Table: a lane takes one of the warp's rows and goes along its keys; neighbouring keys have neighbouring positions, so
// that what two entries get stays in registers until the positions move on. saturated: all are beyond the table.
template <class T>
__device__ void add_to_table(const DeviceCall<T>& call, const ThreadRows& at, std::int64_t first_key, bool saturated,
                             const T* d_logits, const T* positions) {
  const int line = lane_of_warp();
  const std::int64_t row = at.first + line, place = at.before + row;
  if (line >= warp_rows || row >= at.queries) return;
  const Rows<T> d_z = call.d_values.head(at.batch, at.head);
  const T last = static_cast<T>(call.entries - 1);
  const auto add = [&](std::int64_t entry, T value) {
    if (entry >= 0 && entry < call.entries) d_z.at(row, entry) += value;
  };
  std::int64_t low = -2;
  T at_low = 0, above = 0;
  const int end = static_cast<int>(place - first_key + 1 < tile ? place - first_key + 1 : tile);
  for (int j = end - 1; j >= 0; --j) {
    const auto own = attention::place_in_table(saturated ? last : positions[line * pair_ld + j], last);
    if (own.low != low) {
      const bool next = own.low == low + 1;
      add(low, at_low);
      if (!next) add(low + 1, above);
      at_low = next ? above : T{0};
      above = 0;
      low = own.low;
    }
    const T d_logit = d_logits[line * pair_ld + j], high = own.w * d_logit;
    at_low += d_logit - high;
    above += high;
  }
  add(low, at_low);
  add(low + 1, above);
}

// Hidden layer: a lane takes every 32nd unit, for each of the warp's rows.
template <class T>
__device__ void add_to_hidden_layer(const DeviceCall<T>& call, const ThreadRows& at, std::int64_t first_key,
                                    const T* d_logits, const T* positions) {
  for (int line = 0; line < warp_rows && at.first + line < at.queries; ++line) {
    const std::int64_t row = at.first + line, place = at.before + row;
    const int end = static_cast<int>(place - first_key + 1 < tile ? place - first_key + 1 : tile);
    const std::int64_t index = (static_cast<std::int64_t>(at.batch) * call.heads + at.head) * call.queries + row;
    double* const shared = call.partial + index * 2 * call.entries;
    for (std::int64_t n = lane_of_warp(); n < call.entries; n += 32) {
      const T w = call.weight[n * call.weight_step], b = call.bias[n * call.bias_step];
      const T u = call.values.head(at.batch, at.head).at(row, n);
      double d_w = 0, d_b = 0, d_u = 0;
      for (int j = 0; j < end; ++j) {
        const T position = positions[line * pair_ld + j], d_logit = d_logits[line * pair_ld + j];
        const T h = attention::hidden(w, b, position);
        const double d_h = static_cast<double>(attention::hidden_slope(h) * u) * static_cast<double>(d_logit);
        d_u += static_cast<double>(d_logit) * static_cast<double>(h);
        d_w += d_h * static_cast<double>(position);
        d_b += d_h;
      }
      if (call.d_values.data != nullptr) call.d_values.head(at.batch, at.head).at(row, n) += static_cast<T>(d_u);
      shared[n] += d_w;
      shared[call.entries + n] += d_b;
    }
  }
}

// f(r, key, d_logit) for each pair that the thread's rows see, one after the other.
template <class T, Family family, class F>
__device__ void each_seen(std::int64_t first_key, const Pairs<T, family>& pairs, T* d_logits, const F& f) {
  TALLY_ROLLED
  for (int n = 0; n < 2 * columns; ++n) {
    const int r = n / columns, c = n % columns;
    if (tile_column(c) <= of_row(r, pairs.last_seen[0], pairs.last_seen[1])) {
      f(r, first_key + tile_column(c), own_pair(d_logits, r, c));
    }
  }
}

// To that of the first or the second row of a thread, without an index that registers do not have.
template <class T>
__device__ void add_to_one(int r, T x, T& upper, T& lower) {
  upper += of_row(r, x, T{0});
  lower += of_row(r, T{0}, x);
}

// Biases of which a row owns its part.
template <class T, Family family>
__device__ void add_to_biases(const DeviceCall<T>& call, const ThreadRows& at, std::int64_t first_key,
                              const Pairs<T, family>& pairs, T* d_logits) {
  for (int n = 0; n < call.bias_count; ++n) {
    const DeviceBias<T>& bias = call.biases[n];
    if (bias.d_values.data == nullptr) continue;
    const Rows<T> d = bias.d_values.head(at.batch, at.head);
    if (bias.kind == AttentionBias::Kind::dense) {
      each_seen(first_key, pairs, d_logits, [&](int r, std::int64_t key, T x) { d.at(at.row(r), key) = x; });
      continue;
    }
    // Row-toeplitz; with a cap its last entry is shared by all that is as far and farther.
    const std::int64_t single = bias.width - (bias.cap ? 1 : 0);
    T upper = 0, lower = 0;
    each_seen(first_key, pairs, d_logits, [&](int r, std::int64_t key, T x) {
      const std::int64_t distance = at.place(r) - key;
      if (distance < single) {
        d.at(at.row(r), distance) = x;
      } else {
        add_to_one(r, x, upper, lower);
      }
    });
    upper = sum_of_row(upper);
    lower = sum_of_row(lower);
    if (!bias.cap || !at.leads()) continue;
    if (at.valid(0)) d.at(at.row(0), single) += upper;
    if (at.valid(1)) d.at(at.row(1), single) += lower;
  }
}

// Sums of a block's d_logits by distance: a thread has a diagonal.
template <class T>
__device__ void add_by_distance(const DeviceCall<T>& call, const T* d_logits, std::int64_t row_block,
                                std::int64_t first_key, int count) {
  const int rows = block_rows();
  const std::int64_t first_row = row_block * rows, first_place = call.keys - call.queries + first_row;
  const int row_count = static_cast<int>(call.queries - first_row < rows ? call.queries - first_row : rows);
  for (int n = 0; n < call.bias_count; ++n) {
    if (call.biases[n].partial == nullptr) continue;
    double* const sums = call.biases[n].partial + (std::int64_t{blockIdx.x} * gridDim.y + row_block) * call.keys;
    for (int diagonal = static_cast<int>(threadIdx.x); diagonal < rows + tile - 1;
         diagonal += static_cast<int>(blockDim.x)) {
      const int shift = diagonal - (tile - 1);  // row of the block - key of the tile
      const std::int64_t distance = first_place - first_key + shift;
      if (distance < 0 || distance >= call.keys) continue;
      double sum = 0;
      for (int j = 0; j < count; ++j) {
        const int line = j + shift;
        if (line >= 0 && line < row_count) sum += static_cast<double>(d_logits[line * pair_ld + j]);
      }
      sums[distance] += sum;
    }
  }
}

template <class T, ProductPrecision precision, int D, Family family>
__global__ void __launch_bounds__(32 * most_warps, 2)
    attention_backward_rows(const __grid_constant__ DeviceCall<T> call) {
  SHARED_DYNAMIC(T, memory);
  const int rows = block_rows();
  // The last rows see most keys: their blocks begin first.
  const std::int64_t row_block = gridDim.y - 1 - blockIdx.y, first_row = row_block * rows, slice = blockIdx.z;
  const int row_count = static_cast<int>(call.queries - first_row < rows ? call.queries - first_row : rows);
  const ThreadRows at(call, first_row);
  const std::int64_t seen_keys = at.before + first_row + row_count;
  const bool owns = slice == 0;  // of the slices, this one writes what a row owns

  const PairTiles<T> tiles(call, memory, at.warp);
  BackwardProducts<T, precision, D> products(call, at.batch, at.head, memory + tiles.elements(call, rows));
  products.template each<family>([&](auto& product) { product.set_rows(first_row, row_count); });

  RowState<T> state(call, at);
  T d_q[2][width_columns<D>] = {}, d_gate_q[2][width_columns<D>] = {};
  double row_upper = 0, row_lower = 0, slope_upper = 0, slope_lower = 0;  // over the keys, of both rows
  for (std::int64_t key_tile = 0; key_tile * tile < seen_keys; ++key_tile) {
    const std::int64_t first = key_tile * tile;
    const int count = static_cast<int>(seen_keys - first < tile ? seen_keys - first : tile);
    __syncthreads();  // the tile before has been read
    products.template each<family>([&](auto& product) {
      if (!product.whole()) product.load_rows(0);
      product.set_keys(first, count);
    });
    __syncthreads();

    const bool takes_part = at.warp_sees(first);
    PairGradients<T, family> gradients(call, at, key_tile);
    gradients.multiply_scores(products, at.warp, takes_part);
    if (takes_part) gradients.make_weights(call, at, key_tile, state, tiles.d_scores);
    if (owns && call.keeps_positions) store_pairs(tiles.positions, gradients.pairs.positions);
    gradients.multiply_values(products, at.warp, takes_part);
    if (takes_part) {
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        if (family != Family::plain && owns && at.valid(r) && at.leads()) {
          call.d_carry[at.index(call, r) * call.tiles() + key_tile] = state.run[r];
        }
      }
      gradients.finish(call, at, key_tile, state, tiles.d_scores);
      gradients.store_d_scores(tiles.d_scores);
      if constexpr (family == Family::gated) store_pairs(tiles.d_gate_scores, gradients.d_gate_scores);
    }
    if (owns && call.keeps_logits) store_pairs(tiles.d_logits, gradients.d_logits);  // 0 where the warp sees nothing
    __syncwarp();
    if (takes_part && owns && call.keeps_logits) {
      if constexpr (is_contextual(family)) {
        if (call.kind == Kind::mlp) {
          add_to_hidden_layer(call, at, first, tiles.d_logits, tiles.positions);
        } else if (call.kind == Kind::table && call.d_values.data != nullptr) {
          add_to_table(call, at, first, gradients.pairs.saturated, tiles.d_logits, tiles.positions);
        } else if (call.kind == Kind::slope) {
          TALLY_ROLLED
          for (int n = 0; n < 2 * columns; ++n) {
            const int r = n / columns, c = n % columns;
            add_to_one(r,
                       static_cast<double>(own_pair(tiles.d_logits, r, c)) *
                           static_cast<double>(own_pair(tiles.positions, r, c)),
                       slope_upper, slope_lower);
          }
        }
      }
      add_to_biases(call, at, first, gradients.pairs, tiles.d_logits);
      if (call.by_row) {
        each_seen(first, gradients.pairs, tiles.d_logits,
                  [&](int r, std::int64_t, T x) { add_to_one(r, static_cast<double>(x), row_upper, row_lower); });
      }
    }

    const auto bring = [&](const HeadProduct<T, D>& product) {
      if (product.whole()) return;
      __syncthreads();
      product.load_keys(slice);
      __syncthreads();
    };
    bring(products.score);
    if constexpr (family == Family::gated) bring(products.gate);
    __syncwarp();
    if (takes_part) {
      multiply_tile<precision>(d_q, ByRow<T>{tiles.d_scores, pair_ld}, ByColumn<T>{products.score.key_tile, ld_of<D>},
                               tile);
      if constexpr (family == Family::gated) {
        multiply_tile<precision>(d_gate_q, ByRow<T>{tiles.d_gate_scores, pair_ld},
                                 ByColumn<T>{products.gate.key_tile, ld_of<D>}, tile);
      }
    }
    if (owns && call.by_distance) {
      __syncthreads();  // d_logits are whole
      add_by_distance(call, tiles.d_logits - at.warp * warp_rows * pair_ld, row_block, first, count);
    }
  }

  const T scale[2] = {call.scale, call.scale};
  store_rows<D>(call.d_q, at, d_q, slice, call.width, scale);
  if constexpr (family == Family::gated) store_rows<D>(call.d_gate_query, at, d_gate_q, slice, call.gate_width, scale);
  if (call.d_remainder.data != nullptr && owns) {
    const Rows<T> d_o = call.d_output.head(at.batch, at.head), d = call.d_remainder.head(at.batch, at.head);
    TALLY_UNROLL
    for (int r = 0; r < 2; ++r) {
      for (std::int64_t c = lane_of_warp() % row_lanes; at.valid(r) && c < call.value_width; c += row_lanes) {
        d.at(at.row(r), c) = state.inverse[r] * d_o.at(at.row(r), c);
      }
    }
  }
  if (!owns) return;
  TALLY_UNROLL
  for (int r = 0; r < 2; ++r) {
    const double row_sum = sum_of_row(of_row(r, row_upper, row_lower));
    const double slope_sum = sum_of_row(of_row(r, slope_upper, slope_lower));
    if (!at.valid(r) || !at.leads()) continue;
    if (call.kind == Kind::slope) call.partial[at.index(call, r)] = slope_sum;
    for (int n = 0; n < call.bias_count; ++n) {
      const Rows<double>& d_row = call.biases[n].d_row;
      if (d_row.data != nullptr) d_row.head(at.batch, at.head).at(at.row(r)) = row_sum;
    }
  }
}

// do.o of each row, or with sticks do.remainder.
template <class T, Family family>
__global__ void attention_row_delta(const __grid_constant__ DeviceCall<T> call) {
  const ThreadRows at(call, std::int64_t{blockIdx.y} * block_rows());
  const Rows<T>& source = family == Family::sticks ? call.remainder : call.output;
  const Rows<T> d_o = call.d_output.head(at.batch, at.head);
  for (int r = 0; r < 2; ++r) {
    T sum = 0;
    if (at.valid(r) && source.data != nullptr) {
      const Rows<T> other = source.head(at.batch, at.head);
      for (std::int64_t c = lane_of_warp() % row_lanes; c < call.value_width; c += row_lanes) {
        sum += d_o.at(at.row(r), c) * other.at(at.row(r), c);
      }
    }
    sum = sum_of_row(sum);
    if (at.valid(r) && at.leads()) call.row_delta[at.index(call, r)] = sum;
  }
}

}  // namespace

template <class T>
void backward_rows(const AttentionCall& call, const DeviceCall<T>& device) {
  visit_form(device, [&](auto precision, auto width, auto family) {
    constexpr int D = decltype(width)::value;
    constexpr Family constant = decltype(family)::value;
    const int warps = warps_for(call.queries()), rows = warps * warp_rows;
    const auto threads = static_cast<unsigned>(32 * warps);
    launch(attention_row_delta<T, constant>, grid_of(call.queries(), rows, call, 1), threads, 0, context().stream,
           device);
    using Products = BackwardProducts<T, decltype(precision)::value, D>;
    const std::int64_t shared = Products::elements(rows, device.own_gates) + PairTiles<T>::elements(device, rows);
    const std::int64_t slices = std::max(parts_of<D>(device.width), parts_of<D>(device.gate_width));
    launch(attention_backward_rows<T, decltype(precision)::value, D, constant>,
           grid_of(call.queries(), rows, call, slices), threads, sizeof(T) * static_cast<std::size_t>(shared),
           context().stream, device);
  });
}

template void backward_rows(const AttentionCall&, const DeviceCall<float>&);
template void backward_rows(const AttentionCall&, const DeviceCall<double>&);

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels

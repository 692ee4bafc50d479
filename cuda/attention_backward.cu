// Tiled attention backward (cuda/attention_device.hpp has the layout), in two kernels and no atomic operations:
//   by rows: 32 queries, key tiles from left to right: d_q and all that a row owns, and for each key tile what its
//            running sum of d_position was on its left edge
//   by keys: 32 keys, row tiles from the diagonal down: d_k, d_v and all that a key owns. In a first phase threads
//   stand
//            for rows and make weights and d_score of the tile anew, from the running sums of both edges; in a second
//            they stand for keys and add up over the rows
// What all rows share (slopes, toeplitz biases, hidden layers) is written by row and added afterwards in fixed order.
#include <memory>
#include <vector>

#include "core/kernels.hpp"
#include "cuda/attention_device.hpp"
#include "cuda/context.hpp"
#include "cuda/scratch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

using namespace attention_kernels;

// One key tile of a thread's row, once more as in forward: weights, and what the gradient of the scan needs of each
// pair. Tiles of pairs are [keys][tile_ld rows].
template <class T, Kind kind>
struct RowPass {
  const DeviceCall<T>& call;
  const RowThread& at;
  T q[row_part], gate_q[row_part], d_o[row_part];
  T m = 0, inverse = 0, delta = 0;  // of the softmax; delta: do.o, or the gradient of what remains of the stick
  T run = 0;                        // sum of d_position over the keys so far, from the left

  __device__ RowPass(const DeviceCall<T>& call_, const RowThread& at_) : call(call_), at(at_) {
    at.load(q, call.q, call.width, call.scale);
    if (call.own_gates) at.load(gate_q, call.gate_query, call.gate_width, call.scale);
    at.load(d_o, call.d_output, call.value_width, T{1});
    if (at.valid) {
      const T* const stat = call.row_stat + 2 * at.index(call);
      m = stat[0];
      inverse = stat[1];
    }
    T other[row_part];
    const bool sticks = kind == Kind::stick_breaking;
    if (!sticks || call.remainder.data != nullptr) {
      at.load(other, sticks ? call.remainder : call.output, call.value_width, T{1});
      T sum = 0;
      for (int c = 0; c < row_part; ++c) sum += d_o[c] * other[c];
      for (int bit = 1; bit < at.row_threads; bit *= 2) sum += __shfl_xor_sync(whole_warp, sum, bit);
      delta = sum;
    }
  }

  __device__ bool sees(std::int64_t key) const {
    return at.valid && (kind == Kind::stick_breaking && !call.attend_current ? key < at.place : key <= at.place);
  }

  // weights: a_ij. gates: of a contextual scan, for stick-breaking sigmoid(l); slopes: d term / d position; positions.
  __device__ void weights(std::int64_t key_tile, int count, const T* k_tile, const T* gate_tile, T* weights_, T* gates,
                          T* slopes, T* positions) {
    RunningSum<T> position;
    if (kind != Kind::none && at.valid) position.sum = call.carry[at.index(call) * call.tiles() + key_tile];
    for (int j = count - 1; j >= 0; --j) {
      const std::int64_t key = key_tile * tile + j;
      const T s = at.dot(q, k_tile + j * call.padded);
      T gate_score = s;
      if constexpr (contextual(kind)) {
        if (call.own_gates) gate_score = at.dot(gate_q, gate_tile + j * call.padded);
      }
      T weight = 0, g = 0, slope = 0, p = 0;
      if (sees(key)) {
        T logit = s;
        if constexpr (contextual(kind)) {
          g = attention::gate(gate_score);
          p = position.add(g);
          const Term<T, kind> term(call, at, p);
          logit += term.value;
          slope = term.slope;
        }
        logit += bias_of(call, at, key);
        if constexpr (kind == Kind::stick_breaking) {
          weight = attention::stick_weight(logit, position.add(attention::stick_taken(logit)));
          g = math::sigmoid(logit);
        } else {
          weight = math::exp(logit - m) * inverse;
        }
      }
      if (!at.leads()) continue;
      const int pair = j * tile_ld + at.lane;
      weights_[pair] = weight;
      if constexpr (kind != Kind::none) gates[pair] = g;
      if constexpr (contextual(kind)) {
        slopes[pair] = slope;
        positions[pair] = p;
      }
    }
    __syncwarp();
  }

  struct Pair {
    T d_logit = 0, d_score = 0, d_gate_score = 0;
  };
  // Of key j of the tile; the keys of a row come from left to right.
  __device__ Pair gradient(std::int64_t key, int j, const T* v_row, const T* weights_, const T* gates,
                           const T* slopes) {
    T d_weight = at.dot(d_o, v_row);
    Pair pair;
    if (!sees(key)) return pair;
    d_weight *= kept(call, at.index(call), key);
    const int place = j * tile_ld + at.lane;
    const T x = weights_[place] * (d_weight - delta);
    pair.d_logit = x;
    if constexpr (kind == Kind::stick_breaking) {
      run += x;
      pair.d_logit = x - gates[place] * run;
    } else if constexpr (contextual(kind)) {
      run += x * slopes[place];
      pair.d_gate_score = run * attention::gate_slope(gates[place]);
    }
    pair.d_score = pair.d_logit + (call.own_gates ? T{0} : pair.d_gate_score);
    return pair;
  }
};

// Shared memory of both kernels.
template <class T>
struct Tiles {
  T *k, *v, *gate_key;                                // [keys][padded]
  T *weights, *gates, *slopes, *positions, *d_logit;  // [keys][tile_ld rows]

  static __host__ __device__ std::int64_t count(const DeviceCall<T>& call) {
    return (call.own_gates ? 3 : 2) * tile * call.padded + 5 * tile * tile_ld;
  }
  __device__ Tiles(T* memory, const DeviceCall<T>& call)
      : k(memory),
        v(k + tile * call.padded),
        gate_key(v + tile * call.padded),
        weights(gate_key + (call.own_gates ? tile * call.padded : 0)),
        gates(weights + tile * tile_ld),
        slopes(gates + tile * tile_ld),
        positions(slopes + tile * tile_ld),
        d_logit(positions + tile * tile_ld) {}

  __device__ void load_keys(const DeviceCall<T>& call, const RowThread& at, std::int64_t first, int keys) const {
    load_tile(k, call.k.head(at.batch, at.head), first, keys, call.width, call.padded, T{1});
    load_tile(v, call.v.head(at.batch, at.head), first, keys, call.value_width, call.padded, T{1});
    if (call.own_gates) {
      load_tile(gate_key, call.gate_key.head(at.batch, at.head), first, keys, call.gate_width, call.padded, T{1});
    }
  }
};

// What a row owns of the scan's gradient, for one pair.
template <class T, Kind kind>
__device__ void add_scan_gradient(const DeviceCall<T>& call, const RowThread& at, T d_logit, T position) {
  if constexpr (kind == Kind::table) {
    const Rows<T> d_z = call.d_values.head(at.batch, at.head);
    if (d_z.data == nullptr) return;
    const auto place = attention::place_in_table(position, static_cast<T>(call.entries - 1));
    const T high = place.w * d_logit;
    d_z.at(at.row, place.low) += d_logit - high;
    if (place.low + 1 < call.entries) d_z.at(at.row, place.low + 1) += high;
  } else if constexpr (kind == Kind::slope) {
    call.partial[at.index(call)] += static_cast<double>(d_logit) * static_cast<double>(position);
  } else if constexpr (kind == Kind::mlp) {
    const Rows<T> u = call.values.head(at.batch, at.head);
    double* const shared = call.partial + at.index(call) * 2 * call.entries;
    for (std::int64_t n = 0; n < call.entries; ++n) {
      const T h = attention::hidden(call.weight[n * call.weight_step], call.bias[n * call.bias_step], position);
      const T d_h = attention::hidden_slope(h) * (d_logit * u.at(at.row, n));
      if (call.d_values.data != nullptr) call.d_values.head(at.batch, at.head).at(at.row, n) += d_logit * h;
      shared[n] += static_cast<double>(d_h * position);
      shared[call.entries + n] += static_cast<double>(d_h);
    }
  }
}

// What a row owns of the biases' gradients, for one pair.
template <class T>
__device__ void add_bias_gradient(const DeviceCall<T>& call, const RowThread& at, std::int64_t key, T d_logit) {
  const std::int64_t distance = at.place - key;
  for (int n = 0; n < call.bias_count; ++n) {
    const DeviceBias<T>& bias = call.biases[n];
    if (bias.kind == AttentionBias::Kind::row_column && bias.d_row.data != nullptr) {
      bias.d_row.head(at.batch, at.head).at(at.row) += static_cast<double>(d_logit);
    } else if (bias.kind == AttentionBias::Kind::row_toeplitz && bias.d_values.data != nullptr) {
      const Rows<T> d = bias.d_values.head(at.batch, at.head);
      if (distance < bias.width) {
        d.at(at.row, distance) += d_logit;
      } else if (bias.cap) {
        d.at(at.row, bias.width - 1) += d_logit;
      }
    } else if (bias.kind == AttentionBias::Kind::dense && bias.d_values.data != nullptr) {
      bias.d_values.head(at.batch, at.head).at(at.row, key) = d_logit;
    }
  }
}

// Sums of a tile's d_logit by distance: a thread has a diagonal.
template <class T>
__device__ void add_toeplitz_gradient(const DeviceCall<T>& call, const T* d_logit, std::int64_t first_key, int count) {
  const std::int64_t rows_before = call.keys - call.queries + std::int64_t{blockIdx.x} * tile;  // place of lane 0
  const int rows = static_cast<int>(std::min<std::int64_t>(tile, call.queries - std::int64_t{blockIdx.x} * tile));
  for (int n = 0; n < call.bias_count; ++n) {
    if (call.biases[n].partial == nullptr) continue;
    const std::int64_t block = (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * call.keys;
    for (int diagonal = static_cast<int>(threadIdx.x); diagonal < 2 * tile - 1;
         diagonal += static_cast<int>(blockDim.x)) {
      const int shift = diagonal - (tile - 1);  // lane - key of the tile
      const std::int64_t distance = rows_before - first_key + shift;
      if (distance < 0 || distance >= call.keys) continue;
      double sum = 0;
      for (int j = 0; j < count; ++j) {
        const int lane = j + shift;
        if (lane >= 0 && lane < rows) sum += static_cast<double>(d_logit[j * tile_ld + lane]);
      }
      call.biases[n].partial[block + distance] += sum;
    }
  }
}

template <class T, Kind kind>
__global__ void attention_backward_rows(DeviceCall<T> call) {
  SHARED_DYNAMIC(T, memory);
  const Tiles<T> tiles(memory, call);
  const RowThread at(call, blockIdx.x);
  const std::int64_t last_row = std::min<std::int64_t>(call.queries, (std::int64_t{blockIdx.x} + 1) * tile) - 1;
  const std::int64_t seen_keys = call.keys - call.queries + last_row + 1;

  RowPass<T, kind> row(call, at);
  T d_q[row_part], d_gate_q[row_part];
  for (int c = 0; c < row_part; ++c) d_q[c] = d_gate_q[c] = 0;
  for (std::int64_t key_tile = 0; key_tile * tile < seen_keys; ++key_tile) {
    const std::int64_t first = key_tile * tile;
    const int count = static_cast<int>(std::min<std::int64_t>(tile, seen_keys - first));
    __syncthreads();  // the tile before has been read
    tiles.load_keys(call, at, first, count);
    __syncthreads();
    row.weights(key_tile, count, tiles.k, tiles.gate_key, tiles.weights, tiles.gates, tiles.slopes, tiles.positions);
    if (kind != Kind::none && at.valid && at.leads()) call.d_carry[at.index(call) * call.tiles() + key_tile] = row.run;
    for (int j = 0; j < count; ++j) {
      const std::int64_t key = first + j;
      const auto pair = row.gradient(key, j, tiles.v + j * call.padded, tiles.weights, tiles.gates, tiles.slopes);
      at.add(d_q, pair.d_score, tiles.k + j * call.padded);
      if (call.own_gates) at.add(d_gate_q, pair.d_gate_score, tiles.gate_key + j * call.padded);
      if (!at.leads()) continue;
      tiles.d_logit[j * tile_ld + at.lane] = pair.d_logit;
      if (!row.sees(key)) continue;
      if constexpr (contextual(kind)) {
        add_scan_gradient<T, kind>(call, at, pair.d_logit, tiles.positions[j * tile_ld + at.lane]);
      }
      add_bias_gradient(call, at, key, pair.d_logit);
    }
    __syncthreads();  // d_logit is whole
    add_toeplitz_gradient(call, tiles.d_logit, first, count);
  }
  if (call.d_q.data != nullptr) at.store(call.d_q, d_q, call.width, call.scale);
  if (call.d_gate_query.data != nullptr) at.store(call.d_gate_query, d_gate_q, call.gate_width, call.scale);
  if (call.d_remainder.data != nullptr) at.store(call.d_remainder, row.d_o, call.value_width, row.inverse);
}

template <class T, Kind kind>
__global__ void attention_backward_keys(DeviceCall<T> call) {
  SHARED_DYNAMIC(T, memory);
  const Tiles<T> tiles(memory, call);
  T* const q_tile = memory + Tiles<T>::count(call);   // [rows][padded], scaled
  T* const d_out_tile = q_tile + tile * call.padded;  // the same
  T* const gate_query_tile = d_out_tile + tile * call.padded;
  T* const d_score = tiles.slopes;      // once a pair's slope has been used
  T* const d_gate_score = tiles.gates;  // and its gate

  const std::int64_t first_key = std::int64_t{blockIdx.x} * tile;
  const int count = static_cast<int>(std::min<std::int64_t>(tile, call.keys - first_key));
  const std::int64_t before = call.keys - call.queries;  // keys before the first query
  const std::int64_t first_row = first_key > before ? (first_key - before) / tile : 0;

  T d_k[row_part], d_v[row_part], d_gate_key[row_part];
  for (int c = 0; c < row_part; ++c) d_k[c] = d_v[c] = d_gate_key[c] = 0;
  double column = 0;
  for (std::int64_t row_tile = first_row; row_tile * tile < call.queries; ++row_tile) {
    const RowThread at(call, row_tile);
    const int rows = static_cast<int>(std::min<std::int64_t>(tile, call.queries - row_tile * tile));
    __syncthreads();  // the tiles before have been read
    if (row_tile == first_row) tiles.load_keys(call, at, first_key, count);
    load_tile(q_tile, call.q.head(at.batch, at.head), row_tile * tile, rows, call.width, call.padded, call.scale);
    load_tile(d_out_tile, call.d_output.head(at.batch, at.head), row_tile * tile, rows, call.value_width, call.padded,
              T{1});
    if (call.own_gates) {
      load_tile(gate_query_tile, call.gate_query.head(at.batch, at.head), row_tile * tile, rows, call.gate_width,
                call.padded, call.scale);
    }
    __syncthreads();

    RowPass<T, kind> row(call, at);
    row.weights(std::int64_t{blockIdx.x}, count, tiles.k, tiles.gate_key, tiles.weights, tiles.gates, tiles.slopes,
                tiles.positions);
    if (kind != Kind::none && at.valid) row.run = call.d_carry[at.index(call) * call.tiles() + blockIdx.x];
    for (int j = 0; j < count; ++j) {
      const std::int64_t key = first_key + j;
      const auto pair = row.gradient(key, j, tiles.v + j * call.padded, tiles.weights, tiles.gates, tiles.slopes);
      __syncwarp();  // all threads of the row have read the pair
      if (!at.leads()) continue;
      const int place = j * tile_ld + at.lane;
      tiles.d_logit[place] = pair.d_logit;
      d_score[place] = pair.d_score;
      d_gate_score[place] = pair.d_gate_score;
      if (at.valid) tiles.weights[place] *= kept(call, at.index(call), key);
    }
    __syncthreads();

    // Threads stand for keys: at.lane is one of the tile's keys.
    if (at.lane < count) {
      const int line = at.lane * tile_ld;
      for (int i = 0; i < rows; ++i) {
        at.add(d_v, tiles.weights[line + i], d_out_tile + i * call.padded);
        at.add(d_k, d_score[line + i], q_tile + i * call.padded);
        if (call.own_gates) at.add(d_gate_key, d_gate_score[line + i], gate_query_tile + i * call.padded);
        column += static_cast<double>(tiles.d_logit[line + i]);
      }
    }
  }

  const RowThread own(call, blockIdx.x);  // its lane and part; `row` is the key
  if (own.lane >= count) return;
  const auto store = [&](const Rows<T>& x, const T(&values)[row_part], std::int64_t width) {
    if (x.data == nullptr) return;
    const Rows<T> head = x.head(own.batch, own.head);
    for (int c = 0; c < row_part; ++c) {
      if (own.element(c) < width) head.at(own.row, own.element(c)) = values[c];
    }
  };
  store(call.d_k, d_k, call.width);
  store(call.d_v, d_v, call.value_width);
  if (call.own_gates) store(call.d_gate_key, d_gate_key, call.gate_width);
  for (int n = 0; n < call.bias_count && own.leads(); ++n) {
    const Rows<double>& d_column = call.biases[n].d_column;
    if (d_column.data != nullptr) d_column.head(own.batch, own.head).at(own.row) = column;
  }
}

// y[m * step] = sum over outer, then inner, of x[(o * outer_step + m * middle_step + i) * ...]: see the calls. One
// thread an element, always in the same order.
template <class Y>
__global__ void add_parts(Y* y, std::int64_t y_outer_step, std::int64_t y_step, const double* x, std::int64_t outer,
                          std::int64_t inner, std::int64_t x_batch, std::int64_t batches, std::int64_t x_outer,
                          std::int64_t x_part, std::int64_t parts) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t n = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; n < outer * inner; n += step) {
    const std::int64_t o = n / inner, i = n % inner;
    double sum = 0;
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t part = 0; part < parts; ++part) sum += x[b * x_batch + o * x_outer + part * x_part + i];
    }
    y[o * y_outer_step + i * y_step] = static_cast<Y>(sum);
  }
}

// Device memory filled with zeros: what rows add to.
template <class T>
std::unique_ptr<Scratch<T>> zeros(std::int64_t count) {
  auto scratch = std::make_unique<Scratch<T>>(count);
  scratch->set_zero();
  return scratch;
}

template <class T>
void backward(const AttentionCall& call, const AttentionGradients& gradients) {
  DeviceCall<T> device = device_call<T>(call);
  device.d_output = Rows<T>::of(gradients.d_output);
  device.d_q = Rows<T>::of(gradients.d_q);
  device.d_k = Rows<T>::of(gradients.d_k);
  device.d_v = Rows<T>::of(gradients.d_v);
  device.d_gate_query = Rows<T>::of(gradients.d_gate_query);
  device.d_gate_key = Rows<T>::of(gradients.d_gate_key);
  device.d_remainder = Rows<T>::of(gradients.d_remainder);
  const Kind kind = call.scan.kind;
  const std::int64_t heads = call.batch() * call.heads(), rows = heads * call.queries();
  const std::int64_t row_tiles = (call.queries() + tile - 1) / tile;

  // What a row adds to begins at 0.
  if (kind != Kind::slope && gradients.d_values) {
    device.d_values = Rows<T>::of(gradients.d_values);
    fill(gradients.d_values, 0);
  }
  for (int n = 0; n < call.bias_count; ++n) {
    const AttentionBiasGradient& d = gradients.biases[n];
    DeviceBias<T>& bias = device.biases[n];
    if (bias.kind == AttentionBias::Kind::row_column) {
      bias.d_row = Rows<double>::of(d.values);
      bias.d_column = Rows<double>::of(d.column);
      if (d.values) fill(d.values, 0);
    } else if (bias.kind != AttentionBias::Kind::toeplitz) {
      bias.d_values = Rows<T>::of(d.values);
      if (d.values && bias.kind == AttentionBias::Kind::row_toeplitz) fill(d.values, 0);
    }
  }

  const Scratch<T> d_carry(kind != Kind::none ? attention_carry(heads, call.queries(), call.keys()) : 0);
  device.d_carry = d_carry.data();
  const std::int64_t shared_by_row = kind == Kind::slope ? 1 : kind == Kind::mlp ? 2 * device.entries : 0;
  const auto partial = zeros<double>(rows * shared_by_row);
  device.partial = partial->data();
  std::vector<std::unique_ptr<Scratch<double>>> by_distance;
  for (int n = 0; n < call.bias_count; ++n) {
    if (device.biases[n].kind != AttentionBias::Kind::toeplitz || !gradients.biases[n].values) continue;
    by_distance.push_back(zeros<double>(heads * row_tiles * call.keys()));
    device.biases[n].partial = by_distance.back()->data();
  }

  const auto threads = static_cast<unsigned>(tile * device.row_threads);
  const std::int64_t tiles = Tiles<T>::count(device), more = (device.own_gates ? 3 : 2) * tile * device.padded;
  visit_kind(kind, [&](auto tag) {
    constexpr Kind constant = decltype(tag)::value;
    launch(attention_backward_rows<T, constant>, grid_of(call.queries(), call), threads,
           sizeof(T) * static_cast<std::size_t>(tiles), context().stream, device);
    launch(attention_backward_keys<T, constant>, grid_of(call.keys(), call), threads,
           sizeof(T) * static_cast<std::size_t>(tiles + more), context().stream, device);
  });

  constexpr unsigned block = 128;
  const auto add = [&]<class Y>(Y* y, std::int64_t y_outer_step, std::int64_t y_step, const double* x,
                                std::int64_t outer, std::int64_t inner, std::int64_t x_batch, std::int64_t batches,
                                std::int64_t x_outer, std::int64_t x_part, std::int64_t parts) {
    launch(add_parts<Y>, blocks_for(outer * inner, block), block, 0, context().stream, y, y_outer_step, y_step, x,
           outer, inner, x_batch, batches, x_outer, x_part, parts);
  };
  const std::int64_t queries = call.queries(), batch_rows = call.heads() * queries;
  if (kind == Kind::slope && gradients.d_values) {
    add(gradients.d_values.as<T>(), gradients.d_values.strides[0], std::int64_t{0}, partial->data(), call.heads(),
        std::int64_t{1}, batch_rows, call.batch(), queries, std::int64_t{1}, queries);
  }
  if (kind == Kind::mlp) {
    const std::int64_t n = device.entries;
    const auto shared = [&](const View& d, std::int64_t begin) {
      if (!d) return;
      add(d.as<T>(), std::int64_t{0}, d.strides[0], partial->data() + begin, std::int64_t{1}, n, std::int64_t{0},
          std::int64_t{1}, std::int64_t{0}, 2 * n, rows);
    };
    shared(gradients.d_weight, 0);
    shared(gradients.d_bias, n);
  }
  for (int n = 0; n < call.bias_count; ++n) {
    const double* const x = device.biases[n].partial;
    const View& d = gradients.biases[n].values;
    if (x == nullptr) continue;
    add(d.as<T>(), d.strides[0], d.strides[1], x, call.heads(), call.keys(), call.heads() * row_tiles * call.keys(),
        call.batch(), row_tiles * call.keys(), call.keys(), row_tiles);
  }
}

}  // namespace

void attention_backward(const AttentionCall& call, const AttentionGradients& gradients) {
  if (call.output.numel() == 0) return;
  dispatch_floating(call.q.dtype, [&](auto zero) { backward<decltype(zero)>(call, gradients); });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE

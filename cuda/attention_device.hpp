// Tiled attention on the device: what forward and backward share. Formulas: core/cpu/attention.cpp and
// core/cpu/attention_terms.hpp; functions of one pair: core/attention/policies.hpp.
//
// A row (query) belongs to `row_threads` neighbouring lanes of a warp, each with row_part of its elements in registers.
// It walks the keys one after the other, so that a running sum along the keys is a register; keys and values come from
// shared memory, where all rows of a warp read the same place. Every number has one owner: nothing is added by atomic
// operations, and what several blocks share each writes by itself, to be added afterwards in fixed order.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/attention/call.hpp"
#include "core/attention/policies.hpp"
#include "core/error.hpp"
#include "cuda/launch.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

using Kind = AttentionScan::Kind;

inline constexpr int tile = 32;      // rows of a block, and keys that are taken at once
inline constexpr int tile_ld = 33;   // of a tile of pairs [keys][rows]: neighbouring keys lie in different banks too
inline constexpr int row_part = 32;  // elements of a row that one thread holds
inline constexpr int most_biases = 8;
inline constexpr unsigned whole_warp = 0xffffffffu;

// [B, H, N, width] of any strides; axes that are absent have stride 0.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t batch_step = 0, head_step = 0, row_step = 0, column_step = 0;

  static Rows of(const View& x) {
    Rows rows;
    if (!x) return rows;
    rows.data = x.as<T>();
    rows.batch_step = x.strides[0];
    rows.head_step = x.strides[1];
    if (x.shape.rank > 2) rows.row_step = x.strides[2];
    if (x.shape.rank > 3) rows.column_step = x.strides[3];
    return rows;
  }
  __device__ Rows head(int batch, int head_index) const {
    return {data + batch * batch_step + head_index * head_step, 0, 0, row_step, column_step};
  }
  __device__ T& at(std::int64_t row, std::int64_t column = 0) const {
    return data[row * row_step + column * column_step];
  }
};

template <class T>
struct DeviceBias {
  AttentionBias::Kind kind;
  bool cap;
  std::int64_t width;            // entries of a row
  Rows<T> values;                // toeplitz [H, W]: head_step and row_step are those of its two axes
  Rows<double> row, column;      // row_column
  Rows<T> d_values;              // row_toeplitz, dense
  Rows<double> d_row, d_column;  // row_column
  double* partial;               // toeplitz: [B, H, row tiles, W]
};

// A call as it goes to the device.
template <class T>
struct DeviceCall {
  int heads, row_threads;
  std::int64_t queries, keys;
  std::int64_t width, value_width, gate_width, padded;  // padded: the widest, in whole row_part * row_threads
  T scale;
  double dropout;
  RandomStream dropout_stream;
  Rows<T> q, k, v, output, gate_query, gate_key, values, remainder;
  bool own_gates, attend_current;
  std::int64_t entries;  // P+1 of a table, N of a hidden layer
  const T *weight, *bias;
  std::int64_t weight_step, bias_step, slope_step;
  T *row_stat, *carry;
  DeviceBias<T> biases[most_biases];
  int bias_count;

  // Backward.
  Rows<T> d_output, d_q, d_k, d_v, d_gate_query, d_gate_key, d_values, d_remainder;
  T* d_carry;       // sums of d_position (stick-breaking: of A dA) over the keys to the left of each tile
  double* partial;  // of slope [B, H, T], of mlp [B, H, T, 2 N]

  __device__ std::int64_t tiles() const { return (keys + tile - 1) / tile; }
};

// The row of a thread, and the part of its elements that the thread holds: element(c) for c = 0 .. row_part - 1.
struct RowThread {
  int batch, head, lane, part, row_threads;
  std::int64_t row, place;  // query; it sees the keys 0 .. place
  bool valid;

  template <class Call>
  __device__ RowThread(const Call& call, std::int64_t row_tile)
      : batch(static_cast<int>(blockIdx.y) / call.heads),
        head(static_cast<int>(blockIdx.y) % call.heads),
        lane(static_cast<int>(threadIdx.x) / call.row_threads),
        part(static_cast<int>(threadIdx.x) % call.row_threads),
        row_threads(call.row_threads),
        row(row_tile * tile + lane),
        place(call.keys - call.queries + row),
        valid(row < call.queries) {}

  // Neighbouring threads hold neighbouring elements: they read shared memory in different banks.
  __device__ int element(int c) const { return c * row_threads + part; }
  __device__ bool leads() const { return part == 0; }
  // Index of this row among those of all heads.
  template <class Call>
  __device__ std::int64_t index(const Call& call) const {
    return (static_cast<std::int64_t>(batch) * call.heads + head) * call.queries + row;
  }

  // Its elements of x, times factor; 0 beyond the width.
  template <class T>
  __device__ void load(T (&values)[row_part], const Rows<T>& x, std::int64_t width, T factor) const {
    const Rows<T> own = x.head(batch, head);
    for (int c = 0; c < row_part; ++c) {
      values[c] = valid && element(c) < width ? factor * own.at(row, element(c)) : T{0};
    }
  }
  template <class T>
  __device__ void store(const Rows<T>& x, const T (&values)[row_part], std::int64_t width, T factor) const {
    const Rows<T> own = x.head(batch, head);
    for (int c = 0; c < row_part; ++c) {
      if (valid && element(c) < width) own.at(row, element(c)) = factor * values[c];
    }
  }
  // The product with a row of shared memory; every thread of the row gets it. All lanes of the warp take part.
  template <class T>
  __device__ T dot(const T (&values)[row_part], const T* other) const {
    T sum = 0;
    for (int c = 0; c < row_part; ++c) sum += values[c] * other[element(c)];
    for (int bit = 1; bit < row_threads; bit *= 2) sum += __shfl_xor_sync(whole_warp, sum, bit);
    return sum;
  }
  // values += factor * other
  template <class T>
  __device__ void add(T (&values)[row_part], T factor, const T* other) const {
    for (int c = 0; c < row_part; ++c) values[c] += factor * other[element(c)];
  }
};

// target[i][c] = factor x(first + i, c) by all threads of the block; 0 beyond `count` rows and the width.
template <class T>
__device__ void load_tile(T* target, const Rows<T>& x, std::int64_t first, std::int64_t count, std::int64_t width,
                          std::int64_t padded, T factor) {
  for (std::int64_t n = threadIdx.x; n < tile * padded; n += blockDim.x) {
    const std::int64_t i = n / padded, c = n % padded;
    target[n] = i < count && c < width ? factor * x.at(first + i, c) : T{0};
  }
}

// The factor of a weight under dropout.
template <class T>
__device__ T kept(const DeviceCall<T>& call, std::int64_t row_index, std::int64_t key) {
  if (call.dropout == 0) return T{1};
  const auto threshold = static_cast<std::int32_t>(std::ceil(call.dropout * 0x1p24));
  const std::uint32_t bits = call.dropout_stream.now().bits(static_cast<std::uint64_t>(row_index * call.keys + key));
  return static_cast<std::int32_t>(bits >> 8) >= threshold ? static_cast<T>(1.0 / (1.0 - call.dropout)) : T{0};
}

// What the biases add to the logit of row and key.
template <class T>
__device__ T bias_of(const DeviceCall<T>& call, const RowThread& at, std::int64_t key) {
  T sum = 0;
  const std::int64_t distance = at.place - key;
  for (int n = 0; n < call.bias_count; ++n) {
    const DeviceBias<T>& bias = call.biases[n];
    switch (bias.kind) {
      case AttentionBias::Kind::toeplitz:
        sum += bias.values.data[at.head * bias.values.head_step + distance * bias.values.row_step];
        break;
      case AttentionBias::Kind::row_column: {
        double own = bias.row.data != nullptr ? bias.row.head(at.batch, at.head).at(at.row) : 0.0;
        if (bias.column.data != nullptr) own += bias.column.head(at.batch, at.head).at(key);
        sum += static_cast<T>(own);
        break;
      }
      case AttentionBias::Kind::row_toeplitz: {
        const Rows<T> values = bias.values.head(at.batch, at.head);
        if (distance < bias.width) {
          sum += values.at(at.row, distance);
        } else if (bias.cap) {
          sum += values.at(at.row, bias.width - 1);
        }
        break;
      }
      case AttentionBias::Kind::dense: sum += bias.values.head(at.batch, at.head).at(at.row, key); break;
    }
  }
  return sum;
}

// A running sum with what rounding loses kept beside it.
template <class T>
struct RunningSum {
  T sum = 0, lost = 0;
  __device__ T add(T value) {
    const T next = sum + value;
    lost += (sum - next) + value;
    sum = next;
    return next + lost;
  }
  // Tiles begin with what can be kept between them.
  __device__ T settle() {
    sum += lost;
    lost = 0;
    return sum;
  }
};

// The term of a position, and its slope.
template <class T, Kind kind>
struct Term {
  T value = 0, slope = 0;

  __device__ Term(const DeviceCall<T>& call, const RowThread& at, T position) {
    if constexpr (kind == Kind::table) {
      const Rows<T> z = call.values.head(at.batch, at.head);
      const T last = static_cast<T>(call.entries - 1);
      const auto place = attention::place_in_table(position, last);
      const T low = z.at(at.row, place.low);
      slope = place.low + 1 < call.entries ? z.at(at.row, place.low + 1) - low : T{0};
      value = attention::interpolate(low, slope, place.w);
    } else if constexpr (kind == Kind::slope) {
      slope = call.values.data[at.head * call.slope_step];
      value = slope * position;
    } else if constexpr (kind == Kind::mlp) {
      const Rows<T> u = call.values.head(at.batch, at.head);
      for (std::int64_t n = 0; n < call.entries; ++n) {
        const T w = call.weight[n * call.weight_step];
        const T h = attention::hidden(w, call.bias[n * call.bias_step], position);
        value += u.at(at.row, n) * h;
        slope += attention::hidden_slope(h) * (u.at(at.row, n) * w);
      }
    }
  }
};

constexpr bool contextual(Kind kind) { return kind != Kind::none && kind != Kind::stick_breaking; }

// f(tag) with tag.value the kind of the call's scan, as a constant.
template <class F>
void visit_kind(Kind kind, F&& f) {
  switch (kind) {
    case Kind::none: return f(std::integral_constant<Kind, Kind::none>{});
    case Kind::table: return f(std::integral_constant<Kind, Kind::table>{});
    case Kind::slope: return f(std::integral_constant<Kind, Kind::slope>{});
    case Kind::mlp: return f(std::integral_constant<Kind, Kind::mlp>{});
    case Kind::stick_breaking: return f(std::integral_constant<Kind, Kind::stick_breaking>{});
  }
}

// Of the views of a call; without gradients.
template <class T>
DeviceCall<T> device_call(const AttentionCall& call) {
  check(call.bias_count <= most_biases, "attention", "the CUDA kernels take ", most_biases, " biases at a time, not ",
        call.bias_count);
  DeviceCall<T> device{};
  device.heads = static_cast<int>(call.heads());
  device.queries = call.queries();
  device.keys = call.keys();
  device.width = call.q.shape[3];
  device.value_width = call.v.shape[3];
  device.own_gates = static_cast<bool>(call.scan.gate_key);
  device.gate_width = device.own_gates ? call.scan.gate_key.shape[3] : 0;
  const std::int64_t widest = std::max({device.width, device.value_width, device.gate_width});
  device.row_threads = 1;
  while (device.row_threads * row_part < widest) device.row_threads *= 2;
  constexpr int most_threads = 16;
  check(device.row_threads <= most_threads, "attention", "heads are ", widest, " wide, the CUDA kernels take up to ",
        most_threads * row_part);
  device.padded = device.row_threads * row_part;
  device.scale = static_cast<T>(call.scale);
  device.dropout = call.dropout;
  device.dropout_stream = call.dropout_stream;
  device.q = Rows<T>::of(call.q);
  device.k = Rows<T>::of(call.k);
  device.v = Rows<T>::of(call.v);
  device.output = Rows<T>::of(call.output);
  device.gate_query = Rows<T>::of(call.scan.gate_query);
  device.gate_key = Rows<T>::of(call.scan.gate_key);
  device.remainder = Rows<T>::of(call.scan.remainder);
  device.attend_current = call.scan.attend_current;
  if (call.scan.kind == Kind::slope) {
    device.values.data = call.scan.values.as<T>();
    device.slope_step = call.scan.values.strides[0];
  } else if (call.scan.values) {
    device.values = Rows<T>::of(call.scan.values);
    device.entries = call.scan.values.shape[3];
  }
  if (call.scan.weight) {
    device.weight = call.scan.weight.as<T>();
    device.bias = call.scan.bias.as<T>();
    device.weight_step = call.scan.weight.strides[0];
    device.bias_step = call.scan.bias.strides[0];
  }
  device.row_stat = call.row_stat.as<T>();
  device.carry = call.carry.as<T>();
  device.bias_count = call.bias_count;
  for (int n = 0; n < call.bias_count; ++n) {
    const AttentionBias& bias = call.biases[n];
    DeviceBias<T>& target = device.biases[n];
    target.kind = bias.kind;
    target.cap = bias.cap;
    if (bias.kind == AttentionBias::Kind::row_column) {
      target.row = Rows<double>::of(bias.values);
      target.column = Rows<double>::of(bias.column);
    } else if (bias.kind == AttentionBias::Kind::toeplitz) {
      target.values.data = bias.values.as<T>();
      target.values.head_step = bias.values.strides[0];
      target.values.row_step = bias.values.strides[1];
    } else {
      target.values = Rows<T>::of(bias.values);
      target.width = bias.values.shape[3];
    }
  }
  return device;
}

inline dim3 grid_of(std::int64_t rows, const AttentionCall& call) {
  return {static_cast<unsigned>((rows + tile - 1) / tile), static_cast<unsigned>(call.batch() * call.heads())};
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels

// Fused attention on the device: a call in the form passed to kernels, and the biases of one pair of query and key.
// Formulas: core/cpu/attention/attention.cpp and core/cpu/attention/score_mod_loops.hpp; functions of one pair:
// core/attention/pair_functions.hpp; tiles of pairs and their distribution to threads: cuda/attention/tile.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cuda/attention/approximate.hpp"

#include "core/attention/pair_functions.hpp"
#include "core/attention/problem.hpp"
#include "core/attention/score_mod.hpp"
#include "core/device/backend.hpp"
#include "core/error.hpp"
#include "core/math/bfloat16.hpp"
#include "cuda/runtime/context.hpp"
#include "cuda/runtime/instructions.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

using Rule = SoftmaxRuleOperands<View>::Kind;

// The variants of kernels. plain: a softmax of scores and biases; ruled: another rule; paired: with a score
// modification as a template parameter; gated: with a score modification and a product of separate queries and keys.
enum class Family : std::uint8_t { plain, paired, gated, ruled };

inline constexpr int tile = 32;  // number of keys of a tile
inline constexpr int most_biases = 8;
inline constexpr unsigned whole_warp = 0xffffffffu;

// [B, H, N, width] of any strides, or [H, N] or [H]. Axes that are absent have stride 0. In calls of f32 staged
// operands (cuda/attention/stage.hpp) are bf16, and so may those be that Bf16Rows lists.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t batch_step = 0, head_step = 0, row_step = 0, column_step = 0;

  static Rows of(const View& x) {
    const int heads = x.shape.rank > 2 ? 1 : 0;  // axis of the heads
    const auto step = [&](int axis) { return axis >= 0 && axis < x.shape.rank ? x.strides[axis] : 0; };
    return {x.as<T>(), step(heads - 1), step(heads), step(heads + 1), step(heads + 2)};
  }
  // A row_column bias is f64 in calls of any type.
  __device__ Rows<double> as_double() const {
    return {reinterpret_cast<double*>(data), batch_step, head_step, row_step, column_step};
  }
  __device__ Rows head(int batch, int head_index) const {
    return {data + batch * batch_step + head_index * head_step, 0, 0, row_step, column_step};
  }
  __device__ T& at(std::int64_t row, std::int64_t column = 0) const {
    return data[row * row_step + column * column_step];
  }
  __device__ std::int64_t index(int batch, int head_index, std::int64_t row, std::int64_t column) const {
    return batch * batch_step + head_index * head_step + row * row_step + column * column_step;
  }
  // An element, widened if it is bf16.
  __device__ T element(bool is_bf16, int batch, int head_index, std::int64_t row, std::int64_t column) const {
    const std::int64_t n = index(batch, head_index, row, column);
    if constexpr (std::is_same_v<T, float>) {
      if (is_bf16) return static_cast<float>(reinterpret_cast<const Bfloat16*>(data)[n]);
    }
    return data[n];
  }
};

template <class T>
struct DeviceBias : BiasOperands<Rows<T>> {
  int width;                // entries of a row of row_toeplitz
  BiasOperands<Rows<T>> d;  // gradients
  double* partial;          // toeplitz: [B, H, row blocks, W]

  __device__ bool is_by_row() const { return this->kind == BiasKind::row_toeplitz || this->kind == BiasKind::dense; }
};

// Which rows are bf16 in a call of f32. Rows::element() reads them, and store_rows() writes them.
struct Bf16Rows {
  bool output, rest, d_q, d_k, d_v;
};

// A call in the form passed to kernels.
template <class T>
struct DeviceCall : AttentionOperandsOf<Rows<T>> {
  int heads, gqa_group_size, queries, keys;
  int width, value_width, gate_width;
  T scale;
  // Dropout: a weight becomes 0 if the upper 24 bits of its random number are below drop_below, else it is multiplied
  // by kept_scale.
  std::int32_t drop_below;
  T kept_scale;
  RandomStream dropout_stream;
  AttentionMask mask;
  T offset;
  Rows<T> output;
  Bf16Rows is_bf16;
  bool spends;
  int entries;  // P+1 of a table, or the number of knots
  T *softmax_statistics, *scan_checkpoints;
  DeviceBias<T> biases[most_biases];
  int bias_count;

  // Backward.
  Rows<T> d_output;
  AttentionOperandsOf<Rows<T>> d;  // gradients
  Rows<T> rounded_d_output;        // in bf16
  T* row_states;                   // [B, H, T, numbers_per_row]: cuda/attention/gradient.hpp
  T* d_prefix_sums;                // sums of d_position over the keys to the left of each tile
  double* row_sums;                // [B, H, T] sums of d_logits, if a bias needs them
  double* pair_sums;   // [B, H, T, 2 + 2 n] for the n scalars of a score modification: cuda/attention/gradient.hpp
  double* sink_parts;  // [B, H, T] parts of the gradient of a sink; null: not needed
  bool by_distance, by_column;  // whether a bias needs sums over diagonals, columns
  // Whether the kernel by rows needs these tiles in shared memory: d_logits of pairs, places in tables, and gradients
  // of table entries (if they differ from d_logits).
  bool keeps_logits, keeps_places, keeps_entries;

  __host__ __device__ int tiles() const { return (keys + tile - 1) / tile; }
};

// The value of row r of a thread's two rows, for constant or variable r. By value, as registers have no addresses.
template <class T>
__device__ T of_row(int r, T upper, T lower) {
  return r == 0 ? upper : lower;
}

// The rule for turning logits into weights: a compile-time constant if it is the softmax.
template <Family family, class T>
__device__ Rule rule_of(const DeviceCall<T>& call) {
  return family == Family::plain ? Rule::softmax : call.softmax_rule.kind;
}
// The two rows (queries) of a thread: the rows given by tile_row among the 16 of its warp. Four threads share them.
struct ThreadRows {
  int batch, head, warp;
  int first;            // row of the warp's tile
  int before, queries;  // keys before the first query

  // The rows of the block's head.
  template <class Call>
  __device__ ThreadRows(const Call& call, int first_of_block)
      : ThreadRows(call, first_of_block, static_cast<int>(blockIdx.x) / call.heads,
                   static_cast<int>(blockIdx.x) % call.heads) {}
  template <class Call>
  __device__ ThreadRows(const Call& call, int first_of_block, int batch_index, int head_index)
      : batch(batch_index),
        head(head_index),
        warp(static_cast<int>(threadIdx.x) / 32),
        first(first_of_block + warp * warp_rows),
        before(call.keys - call.queries),
        queries(call.queries) {}

  __device__ int row(int r) const { return first + tile_row(r); }
  __device__ int query(int r) const { return before + row(r); }  // its index among the keys: causal keys are 0 .. query
  __device__ bool valid(int r) const { return row(r) < queries; }
  __device__ bool leads() const { return lane_of_warp() % row_lanes == 0; }
  // Whether any of the block's row_count rows sees any of a tile's `count` keys.
  template <class Call>
  __device__ bool block_sees(const Call& call, int row_count, int first_key, int count) const {
    const int query = before + first - warp * warp_rows;
    return call.mask.attends_any(query, query + row_count - 1, first_key, first_key + count - 1);
  }
  // Whether any row of the warp can see any key from `key` on.
  __device__ bool warp_sees(int key) const {
    const int end = first + warp_rows < queries ? first + warp_rows : queries;
    return first < queries && key < before + end;
  }
  // Index of a row among the rows of all heads.
  template <class Call>
  __device__ std::int64_t index_of(const Call& call, int own_row) const {
    return (static_cast<std::int64_t>(batch) * call.heads + head) * queries + own_row;
  }
  template <class Call>
  __device__ std::int64_t index(const Call& call, int r) const {
    return index_of(call, row(r));
  }
};

// The sum of the biases for row r and key.
template <class T>
__device__ T bias_of(const DeviceCall<T>& call, const ThreadRows& at, int r, int key) {
  T sum = 0;
  const int distance = at.query(r) - key;
  for (int n = 0; n < call.bias_count; ++n) {
    const DeviceBias<T>& bias = call.biases[n];
    switch (bias.kind) {
      case BiasOperands<View>::Kind::toeplitz:
        sum += bias.values.data[at.head * bias.values.head_step + distance * bias.values.row_step];
        break;
      case BiasOperands<View>::Kind::row_column: {
        const Rows<double> row = bias.values.as_double(), column = bias.column.as_double();
        double own = row.data != nullptr ? row.head(at.batch, at.head).at(at.row(r)) : 0.0;
        if (column.data != nullptr) own += column.head(at.batch, at.head).at(key);
        sum += static_cast<T>(own);
        break;
      }
      case BiasOperands<View>::Kind::row_toeplitz: {
        const Rows<T> values = bias.values.head(at.batch, at.head);
        if (distance < bias.width) {
          sum += values.at(at.row(r), distance);
        } else if (bias.cap) {
          sum += values.at(at.row(r), bias.width - 1);
        }
        break;
      }
      case BiasOperands<View>::Kind::dense: sum += bias.values.head(at.batch, at.head).at(at.row(r), key); break;
    }
  }
  return sum;
}

// Converts a call, without gradients.
template <class T>
DeviceCall<T> device_call(const AttentionCall& call) {
  check(call.biases.size() <= most_biases, "attention", "the CUDA kernels take {} biases at a time, not {}",
        most_biases, call.biases.size());
  // Kernels count in int, which takes half the registers. Tensors with more rows do not fit into memory anyway.
  const auto as_int = [](std::int64_t count) {
    check(count <= std::numeric_limits<int>::max() / 2, "attention", "the CUDA kernels take sizes below 2^30, not {}",
          count);
    return static_cast<int>(count);
  };
  DeviceCall<T> device{};
  device.heads = static_cast<int>(call.heads());
  device.gqa_group_size = static_cast<int>(gqa_group_size(call));
  device.queries = as_int(call.queries());
  device.keys = as_int(call.keys());
  device.width = as_int(call.q.shape[3]);
  device.value_width = as_int(call.v.shape[3]);
  device.gate_width = call.score_mod.gate_key ? as_int(call.score_mod.gate_key.shape[3]) : 0;
  device.scale = static_cast<T>(call.scale);
  device.drop_below = static_cast<std::int32_t>(std::ceil(call.dropout * 0x1p24));
  device.kept_scale = static_cast<T>(1.0 / (1.0 - call.dropout));
  device.dropout_stream = call.dropout_stream;
  const auto convert = [](const OperandRule&, const View& x, Rows<T>& target) { target = Rows<T>::of(x); };
  const AttentionOperandsOf<View>& operands = call;
  for_each_operand(convert, operands, device);
  device.output = Rows<T>::of(call.output);
  device.is_bf16.output = call.output.dtype == DType::bf16;
  device.is_bf16.rest = call.softmax_rule.rest.dtype == DType::bf16;
  device.mask = call.mask;
  device.softmax_rule.kind = call.softmax_rule.kind;
  device.offset = static_cast<T>(call.softmax_rule.offset);
  device.spends = call.softmax_rule.kind == SoftmaxRuleOperands<View>::Kind::exp && call.score_mod.mod != nullptr &&
                  call.score_mod.mod->traits.sums;
  if (call.score_mod.table)
    device.entries = as_int(call.score_mod.knots ? call.score_mod.knots.shape[0] : call.score_mod.table.shape[3]);
  device.softmax_statistics = call.softmax_statistics.as<T>();
  device.scan_checkpoints = call.scan_checkpoints.as<T>();
  for (const BiasOperands<View>& bias : call.biases) {
    DeviceBias<T>& target = device.biases[device.bias_count++];
    target.kind = bias.kind;
    target.cap = bias.cap;
    if (bias.values.shape.rank == 4) target.width = as_int(bias.values.shape[3]);
    for_each_bias_operand(convert, bias, target);
  }
  return device;
}

inline const ScoreModKernels& kernels_of(const ScoreMod& mod) {
  const ScoreModKernels* const kernels = mod.TALLY_CUDA_NAMESPACE;
  check(kernels != nullptr, "attention", "the score modification '{}' was not compiled as CUDA", mod.name);
  return *kernels;
}

using attention::NoScoreMod;
using attention::traits_of;
template <class Mod>
inline constexpr bool has_score_mod = !std::is_same_v<Mod, NoScoreMod>;
template <class Mod>
inline constexpr int scalar_count = traits_of<Mod>.rows + traits_of<Mod>.heads;

// Whether kernels of a score modification are compiled for every precision and head width. For execution on the CPU
// each form takes the compiler seconds. There most score modifications get f64 and one form of f32
// (core/cmake/score_mods.cmake), whose products are exact at any precision.
#ifdef TALLY_EVERY_FORM
constexpr bool every_form = true;
#else
constexpr bool every_form = false;
#endif
template <class Mod>
inline constexpr bool takes_bf16 = every_form || !has_score_mod<Mod>;

// Calls f(precision, width, family, bytes). The first three are compile-time constants: the precision of f32 products,
// the part of a head's width that a block holds in shared memory at a time, and the family. bytes(width, family) is the
// shared memory that this takes. A wide head is processed in several parts if the whole would exceed the device's
// shared memory; the results have the same bits. f64 is for checks and has one width. Throws Error if not even the
// narrowest fits. At the precision of bf16, products are in TF32, which has every bf16 number.
template <class Mod, class T, class Bytes, class F>
void visit_form(const DeviceCall<T>& call, Bytes&& bytes, F&& f) {
  using Precision = MatmulPrecision;
  const int widest = std::max({call.width, call.value_width, call.gate_width});
  const std::size_t limit = shared_memory_limit();
  const auto with_family = [&](auto precision, auto family) {
    const auto with_width = [&]<int D>() {
      constexpr std::integral_constant<int, D> width{};
      const std::size_t needed = bytes(width, family);
      if (needed > limit || widest <= D / 2) return false;
      f(precision, width, family, needed);
      return true;
    };
    // Separate gate operands need a third product, for which no device has memory for 128 columns. For score
    // modifications, 128 columns would double nvcc's time.
    constexpr bool all = sizeof(T) == sizeof(float),
                   wide = all && decltype(family)::value != Family::gated && !has_score_mod<Mod>;
    if constexpr (wide) {
      if (with_width.template operator()<128>()) return;
    }
    if constexpr (all && (every_form || !has_score_mod<Mod>)) {
      if (with_width.template operator()<64>()) return;
    }
    constexpr std::integral_constant<int, 32> narrowest{};
    const std::size_t needed = bytes(narrowest, family);
    check(needed <= limit, "attention",
          "the CUDA kernels need {} KiB of shared memory for this score, and the device has {}", needed >> 10,
          limit >> 10);
    f(precision, narrowest, family, needed);
  };
  const auto with_precision = [&](auto precision) {
    const auto run = [&]<Family family>() { with_family(precision, std::integral_constant<Family, family>{}); };
    if constexpr (has_score_mod<Mod>) {  // no other family is compiled
      if constexpr (traits_of<Mod>.gate_logit) {
        if (call.score_mod.gate_key.data != nullptr) return run.template operator()<Family::gated>();
      }
      run.template operator()<Family::paired>();
    } else {
      call.softmax_rule.kind == Rule::softmax ? run.template operator()<Family::plain>()
                                              : run.template operator()<Family::ruled>();
    }
  };
  if constexpr (sizeof(T) == sizeof(float) && (every_form || !has_score_mod<Mod>)) {
    if (matmul_precision() != Precision::f32) {
      return with_precision(std::integral_constant<Precision, Precision::tf32>{});
    }
  }
  with_precision(std::integral_constant<Precision, Precision::f32>{});
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels

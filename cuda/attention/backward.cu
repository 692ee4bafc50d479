// Fused attention backward, without atomic operations. First runs a kernel by rows (cuda/attention/backward_rows.cu),
// then one by keys (cuda/attention/backward_keys.cu). The second recomputes weights and gradients of scores from the
// running sums that the first saved at the tiles' edges. Gradients that all rows share (numbers of heads, toeplitz
// biases) are written by row or block and added here, in fixed order.
#include <array>

#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "cuda/attention/gradient.hpp"
#include "cuda/attention/operands.hpp"
#include "cuda/reduce.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

using namespace attention_kernels;

// to [B, H, T, width], dense, = factor x, rounded to bf16.
template <class X>
struct RoundedRows {
  std::uint32_t* to = nullptr;  // null: nothing to do
  Rows<X> x = {};
  int heads = 0, queries = 0, width = 0;
  float factor = 1;

  RoundedRows() = default;
  RoundedRows(const View& target, const View& from, float factor_)
      : to(target.as<std::uint32_t>()),
        x(Rows<X>::of(from)),
        heads(static_cast<int>(from.shape[1])),
        queries(static_cast<int>(from.shape[2])),
        width(static_cast<int>(from.shape[3])),
        factor(factor_) {}

  // Rounds every row_lanes-th chunk of columns of a row, from chunk `first` on. row: index among the rows of all heads.
  __device__ void round(std::int64_t row, int first) const {
    if (to == nullptr) return;
    const std::int64_t head = row / queries;
    const Rows<X> own = x.head(static_cast<int>(head / heads), static_cast<int>(head % heads));
    for (int column = first * stage_chunk; column < width; column += row_lanes * stage_chunk) {
      TALLY_UNROLL
      for (int c = 0; c < stage_chunk; c += 2) {
        const auto rounded = [&](int at) {
          const X value = own.at(row % queries, column + at);
          return factor * (std::is_same_v<X, float> ? static_cast<float>(value)
                                                    : std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16));
        };
        to[(row * width + column + c) / 2] = detail::as_bf16_pair(rounded(c), rounded(c + 1));
      }
    }
  }
};

// The operands of rows for the kernels for bf16.
struct StagedOperandRows {
  RoundedRows<std::uint16_t> q, gate_query;
  RoundedRows<float> d_output;
};

// Prepares each row for backward: writes the numbers of gradient.hpp, rounded operands if operands are bf16, and the
// row's part of the gradient of a sink, -(1 - sum_j a_ij) D_i. Clears the gradient of the row's table.
template <class T>
__global__ void attention_row_states(const __grid_constant__ DeviceCall<T> call, bool staged,
                                     const __grid_constant__ StagedOperandRows operands) {
  const ThreadRows at(call, static_cast<int>(blockIdx.y) * block_rows());
  const Rows<T> d_o = call.d_output.head(at.batch, at.head);
  const Rows<T> d_table = call.d.score_mod.table.head(at.batch, at.head);
  const int numbers = d_table.data == nullptr ? 0 : (call.score_mod.knots.data != nullptr ? 2 : 1) * call.entries;
  const int first = lane_of_warp() % row_lanes;
  const Rule rule = call.softmax_rule.kind;
  for (int r = 0; r < 2; ++r) {
    T of_output = 0, of_rest = 0;
    for (int c = first; at.valid(r) && c < call.value_width; c += row_lanes) {
      const T d = d_o.at(at.row(r), c);
      of_output += d * call.output.element(call.is_bf16.output, at.batch, at.head, at.row(r), c);
      if (call.softmax_rule.rest.data != nullptr)
        of_rest += d * call.softmax_rule.rest.element(call.is_bf16.rest, at.batch, at.head, at.row(r), c);
    }
    of_output = sum_of_row(of_output);
    of_rest = sum_of_row(of_rest);
    if (!at.valid(r)) continue;
    const std::int64_t row = at.index(call, r);
    for (int n = first; n < numbers; n += row_lanes) d_table.at(at.row(r), n) = 0;
    if (staged) {
      operands.q.round(row, first);
      operands.d_output.round(row, first);
      operands.gate_query.round(row, first);
    }
    if (!at.leads()) continue;
    const T* const statistics = call.softmax_statistics + statistics_per_row * row;
    const T d_row = of_output - of_rest;
    T* const own = call.row_states + numbers_per_row * row;
    own[0] = statistics[0];
    if (staged && (rule == Rule::softmax || rule == Rule::exp)) own[0] -= math::log(statistics[1]);
    own[1] = statistics[1];
    own[2] = rule == Rule::softmax ? of_rest + d_row : of_rest;
    own[3] = d_row;
    if (call.sink_parts != nullptr) {
      call.sink_parts[row] = -static_cast<double>(statistics[2]) * static_cast<double>(d_row);
    }
  }
}

// Memory for the rounded operands of rows: queries times the scale, and the gradient of the output.
struct StagedCopies {
  View q, d_output, gate_query;

  StagedCopies(const AttentionCall& call, const AttentionGradients& gradients, Arena& arena) {
    const auto take = [&](const View& x) {
      return View{arena.take<std::uint16_t>(x.numel()), DType::bf16, x.shape, dense_strides(x.shape)};
    };
    q = take(call.q);
    d_output = take(gradients.d_output);
    if (call.score_mod.gate_query) gate_query = take(call.score_mod.gate_query);
  }
  StagedOperandRows rows(const AttentionCall& call, const AttentionGradients& gradients) const {
    const auto scale = static_cast<float>(call.scale);
    return {{q, call.q, scale}, {gate_query, call.score_mod.gate_query, scale}, {d_output, gradients.d_output, 1}};
  }
};

template <class T>
std::int64_t row_blocks_of(const AttentionCall& call) {
  const int block_rows = warps_for<T>(call.queries()) * warp_rows;
  return (call.queries() + block_rows - 1) / block_rows;
}

// Intermediate results of the kernels, in a workspace.
template <class T>
struct Between {
  T *row_states, *d_prefix_sums;
  double* sink_parts;
  double* row_sums;                    // DeviceCall::row_sums; cleared first
  double* pair_sums;                   // DeviceCall::pair_sums; cleared first
  double* by_distance[most_biases]{};  // DeviceBias::partial of each toeplitz bias; cleared first
  std::int64_t row_sum_elements = 0, pair_sum_elements = 0, distance_elements = 0;

  Between(const AttentionCall& call, const AttentionGradients& gradients, Arena& arena) {
    const std::int64_t heads = call.batch() * call.heads(), rows = heads * call.queries();
    bool by_row = false;
    for (std::size_t n = 0; n < call.biases.size(); ++n) {
      by_row |= call.biases[n].kind == BiasOperands<View>::Kind::row_column && gradients.biases[n].values;
    }
    if (by_row) row_sum_elements = rows;
    if (call.score_mod.mod != nullptr) {
      const int numbers = call.score_mod.mod->traits.rows + call.score_mod.mod->traits.heads;
      pair_sum_elements = numbers > 0 ? (2 + 2 * numbers) * rows : 0;
    }
    distance_elements = heads * row_blocks_of<T>(call) * call.keys();
    row_states = arena.take<T>(numbers_per_row * rows);
    sink_parts = arena.take<double>(gradients.softmax_rule.sink ? rows : 0);
    const bool sums = call.score_mod.mod != nullptr && call.score_mod.mod->traits.sums;
    d_prefix_sums = arena.take<T>(sums ? attention_prefix_sums(call) : 0);
    row_sums = arena.take<double>(row_sum_elements);
    pair_sums = arena.take<double>(pair_sum_elements);
    for (std::size_t n = 0; n < call.biases.size(); ++n) {
      if (call.biases[n].kind != BiasOperands<View>::Kind::toeplitz || !gradients.biases[n].values) continue;
      by_distance[n] = arena.take<double>(distance_elements);
    }
  }
};

void set_zero(double* x, std::int64_t count) {
  if (x == nullptr) return;
  CUDA_CHECK(cudaMemsetAsync(x, 0, static_cast<std::size_t>(count) * sizeof(double), context().stream));
}

template <class T>
void backward(const AttentionCall& call, const AttentionGradients& gradients, Arena& arena) {
  DeviceCall<T> device = device_call<T>(call);
  device.d_output = Rows<T>::of(gradients.d_output);
  const std::int64_t heads = call.batch() * call.heads(), rows = heads * call.queries();
  const std::int64_t row_blocks = row_blocks_of<T>(call);

  const auto begin = [&device](const OperandRule& rule, const View& d, Rows<T>& target) {
    target = Rows<T>::of(d);
    const bool is_table = &target == &device.d.score_mod.table;  // attention_row_states clears it
    if (d && rule.gradient == OperandRule::Gradient::added && !is_table) fill(d, 0);
  };
  const AttentionOperandsOf<View>& d_operands = gradients;
  for_each_operand(begin, d_operands, device.d);
  device.is_bf16.d_q = gradients.q.dtype == DType::bf16;
  device.is_bf16.d_k = gradients.k.dtype == DType::bf16;
  device.is_bf16.d_v = gradients.v.dtype == DType::bf16;
  bool by_row = false;
  for (std::size_t n = 0; n < gradients.biases.size(); ++n) {
    const BiasOperands<View>& d = gradients.biases[n];
    DeviceBias<T>& bias = device.biases[n];
    for_each_bias_operand(begin, d, bias.d);
    const bool row_column = d.kind == BiasKind::row_column;
    by_row |= row_column && d.values;
    if (row_column && d.column) fill(d.column, 0);
    device.by_column |= row_column && d.column;
    device.keeps_logits |= bias.is_by_row() && d.values;
  }

  const bool staged = call.q.dtype == DType::bf16;
  StagedOperandRows operands;
  if (staged) {
    const StagedCopies copies(call, gradients, arena);
    operands = copies.rows(call, gradients);
    device.q = Rows<T>::of(copies.q);
    device.rounded_d_output = Rows<T>::of(copies.d_output);
    if (copies.gate_query) device.score_mod.gate_query = Rows<T>::of(copies.gate_query);
  }
  const Between<T> between(call, gradients, arena);
  device.row_states = between.row_states;
  device.sink_parts = between.sink_parts;
  device.d_prefix_sums = between.d_prefix_sums;
  device.row_sums = between.row_sums;
  set_zero(between.row_sums, between.row_sum_elements);
  device.pair_sums = between.pair_sums;
  set_zero(between.pair_sums, between.pair_sum_elements);
  for (std::size_t n = 0; n < call.biases.size(); ++n) {
    if (between.by_distance[n] == nullptr) continue;
    device.biases[n].partial = between.by_distance[n];
    set_zero(between.by_distance[n], between.distance_elements);
    device.by_distance = true;
  }

  const int warps = warps_for<T>(call.queries());
  launch(attention_row_states<T>, grid_of(heads, call.queries(), warps * warp_rows, 1),
         static_cast<unsigned>(32 * warps), 0, context().stream, device, staged, operands);

  const ScoreMod* const mod = call.score_mod.mod;
  device.keeps_places = static_cast<bool>(gradients.score_mod.table);
  device.keeps_entries = gradients.score_mod.table && !mod->traits.adds_entry;
  device.keeps_logits |= device.keeps_places || device.by_distance || by_row;
  if (mod != nullptr) {
    kernels_of(*mod).backward_rows(call, &device);
    kernels_of(*mod).backward_keys(call, &device);
  } else {
    backward_rows<NoScoreMod>(call, device);
    backward_keys<NoScoreMod>(call, device);
  }

  // d = the sum of x [shape] over the axes that have size 1 in `kept`.
  using Steps = std::array<std::int64_t, max_rank>;
  const auto add = [](const View& d, const Shape& kept, const Steps& d_steps, double* x, const Shape& shape,
                      const Steps& steps) {
    if (d) sum_doubles({d.data, d.dtype, kept, {d_steps}}, {x, DType::f64, shape, {steps}});
  };
  const std::int64_t batches = call.batch(), queries = call.queries(), per_batch = call.heads() * queries;
  if (gradients.softmax_rule.sink) {
    add(gradients.softmax_rule.sink, {1, call.heads(), 1}, {0, gradients.softmax_rule.sink.strides[0], 0},
        between.sink_parts, {batches, call.heads(), queries}, {per_batch, queries, 1});
  }
  for (int n = 0; mod != nullptr && n < mod->traits.heads; ++n) {
    const std::int64_t step = between.pair_sum_elements / rows;
    View d = gradients.score_mod.heads;
    if (!d) break;
    d.data = d.as<T>() + n * d.strides[1];
    add(d, {1, call.heads(), 1}, {0, d.strides[0], 0}, between.pair_sums + 2 + 2 * (mod->traits.rows + n),
        {batches, call.heads(), queries}, {step * per_batch, step * queries, step});
  }
  for (std::size_t n = 0; n < call.biases.size(); ++n) {
    double* const x = device.biases[n].partial;
    if (x == nullptr) continue;
    const std::int64_t head = row_blocks * call.keys();
    const View& d = gradients.biases[n].values;
    add(d, {1, call.heads(), 1, call.keys()}, {0, d.strides[0], 0, d.strides[1]}, x,
        {batches, call.heads(), row_blocks, call.keys()}, {call.heads() * head, head, call.keys(), 1});
  }
}

}  // namespace

std::int64_t attention_backward_workspace(const AttentionCall& call, const AttentionGradients& gradients) {
  if (call.output.numel() == 0) return 0;
  Arena arena(nullptr);
  const CallInF32 own(call, arena, !has_bf16_backward(call));
  if (own.call.q.dtype == DType::bf16) StagedCopies(call, gradients, arena);
  dispatch_floating(call.q.dtype, [&](auto zero) { Between<decltype(zero)>(call, gradients, arena); });
  return arena.bytes();
}

void attention_backward(const AttentionCall& call, const AttentionGradients& gradients, void* workspace) {
  if (call.output.numel() == 0) return;
  Arena arena(workspace);
  const CallInF32 own(call, arena, !has_bf16_backward(call));
  own.copy_operands();
  dispatch_floating(call.q.dtype, [&](auto zero) { backward<decltype(zero)>(own.call, gradients, arena); });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE

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

// to [B, H, T, width], dense, = factor x, rounded to bf16. A thread takes a chunk of columns at a time.
template <class X>
__global__ void attention_rounded_rows(std::uint32_t* to, Rows<X> x, int heads, int queries, int width, float factor,
                                       std::int64_t chunks) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t n = first; n < chunks; n += std::int64_t{gridDim.x} * blockDim.x) {
    const int each = width / stage_chunk, column = static_cast<int>(n % each) * stage_chunk;
    const std::int64_t row = n / each, head = row / queries;
    const Rows<X> own = x.head(static_cast<int>(head / heads), static_cast<int>(head % heads));
    TALLY_UNROLL
    for (int c = 0; c < stage_chunk; c += 2) {
      const auto rounded = [&](int at) {
        const X value = own.at(row % queries, column + at);
        return factor * (std::is_same_v<X, float> ? static_cast<float>(value)
                                                  : std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16));
      };
      to[n * (stage_chunk / 2) + c / 2] = detail::as_bf16_pair(rounded(c), rounded(c + 1));
    }
  }
}

// Operands of rows for the kernels for bf16: queries times the scale, and the gradient of the output.
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
  void round(const AttentionCall& call, const AttentionGradients& gradients) const {
    const auto scale = static_cast<float>(call.scale);
    round_rows<std::uint16_t>(q, call.q, scale);
    round_rows<float>(d_output, gradients.d_output, 1);
    if (gate_query) round_rows<std::uint16_t>(gate_query, call.score_mod.gate_query, scale);
  }

 private:
  template <class X>
  static void round_rows(const View& to, const View& x, float factor) {
    const std::int64_t chunks = x.numel() / stage_chunk;
    const auto size = [&](int axis) { return static_cast<int>(x.shape[axis]); };
    constexpr int threads = 256;
    launch(attention_rounded_rows<X>, blocks_for(chunks, threads), threads, 0, context().stream, to.as<std::uint32_t>(),
           Rows<X>::of(x), size(1), size(2), size(3), factor, chunks);
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

  const auto begin = [](const OperandRule& rule, const View& d, Rows<T>& target) {
    target = Rows<T>::of(d);
    if (d && rule.gradient == OperandRule::Gradient::added) fill(d, 0);
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

  if (call.q.dtype == DType::bf16) {
    const StagedCopies copies(call, gradients, arena);
    copies.round(call, gradients);
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

// Fused attention backward, without atomic operations. First runs a kernel by rows (cuda/attention/backward_rows.cu),
// then one by keys (cuda/attention/backward_keys.cu). The second recomputes weights and gradients of scores from the
// running sums that the first saved at the tiles' edges. Gradients that all rows share (numbers of heads, toeplitz
// biases) are written by row or block and added here, in fixed order.
#include <array>

#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "cuda/attention/gradient.hpp"
#include "cuda/reduce.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE {

namespace {

using namespace attention_kernels;

template <class T>
std::int64_t row_blocks_of(const AttentionCall& call) {
  const int block_rows = warps_for<T>(call.queries()) * warp_rows;
  return (call.queries() + block_rows - 1) / block_rows;
}

// Intermediate results of the kernels, in a workspace.
template <class T>
struct Between {
  T *row_gradients, *d_prefix_sums;
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
    row_gradients = arena.take<T>(2 * rows);
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
void backward(const AttentionCall& call, const AttentionGradients& gradients, void* workspace) {
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
  bool by_row = false;
  for (std::size_t n = 0; n < gradients.biases.size(); ++n) {
    const BiasOperands<View>& d = gradients.biases[n];
    DeviceBias<T>& bias = device.biases[n];
    for_each_bias_operand(begin, d, bias.d);
    const bool row_column = d.kind == BiasKind::row_column;
    by_row |= row_column && d.values;
    device.by_column |= row_column && d.column;
    device.keeps_logits |= bias.is_by_row() && d.values;
  }

  Arena arena(workspace);
  const Between<T> between(call, gradients, arena);
  device.row_gradients = between.row_gradients;
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
  dispatch_floating(call.q.dtype, [&](auto zero) { Between<decltype(zero)>(call, gradients, arena); });
  return arena.bytes();
}

void attention_backward(const AttentionCall& call, const AttentionGradients& gradients, void* workspace) {
  if (call.output.numel() == 0) return;
  dispatch_floating(call.q.dtype, [&](auto zero) { backward<decltype(zero)>(call, gradients, workspace); });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE

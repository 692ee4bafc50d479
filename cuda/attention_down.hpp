// Tiled attention with sums down the queries (PairNeeds::down): what is carried from rows to rows. Blocks of rows run
// side by side, so each first writes what its own rows add up to, a number for every down_rows rows and key; the sums
// of all before are then taken along the rows, in double. Forward carries the down_gates to later queries, backward the
// gradients of p.down to earlier ones; in both the tiles are made once more than without.
#pragma once

#include "cuda/attention_gradient.hpp"
#include "cuda/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Of backward, or of forward.
template <class T, ProductPrecision precision, int D, Family family, class Policy, bool backward>
__global__ void __launch_bounds__(32 * most_warps<T>, 2)
    attention_column_sums(const __grid_constant__ DeviceCall<T> call) {
  SHARED_DYNAMIC(T, memory);
  constexpr Over rows = backward ? Over::later : Over::earlier;
  // Gates of forward that have operands of their own may not need the score.
  constexpr bool needs_score = backward || family != Family::gated || !Policy::needs.adds;
  // The last rows see most keys: their blocks begin first.
  const int first_row = static_cast<int>(gridDim.y - 1 - blockIdx.y) * block_rows();
  const int row_count =
      static_cast<int>(call.queries - first_row < block_rows() ? call.queries - first_row : block_rows());
  const ThreadRows at(call, first_row);
  const int seen_keys = at.before + first_row + row_count;

  using Products = BackwardProducts<T, precision, D, most_rows<T>>;
  Products products(call, at.batch, at.head, memory);
  T* const scratch = memory + product_elements<D, most_rows<T>>(family) + at.warp * warp_rows * pair_ld;
  const auto each = [&](const auto& f) {
    if constexpr (needs_score) f(products.score);
    if constexpr (backward) f(products.value);
    if constexpr (family == Family::gated) f(products.gate);
  };
  each([&](auto& product) { product.set_rows(first_row, row_count); });
  for (int key_tile = 0; key_tile * tile < seen_keys; ++key_tile) {
    const int first = key_tile * tile;
    const int count = static_cast<int>(seen_keys - first < tile ? seen_keys - first : tile);
    if (!at.block_sees(call, row_count, first, count)) continue;
    __syncthreads();  // the tile before has been read
    each([&](auto& product) {
      if (!product.whole()) product.load_rows(0);
      product.set_keys(first, count);
    });
    __syncthreads();

    const bool takes_part = at.warp_sees(first);
    PairGradients<T, family, Policy> gradients(call, at, key_tile);
    if constexpr (needs_score) {
      gradients.multiply_scores(products, at.warp, takes_part);
    } else {
      products.gate.template multiply<precision>(gradients.d_gate_scores, at.warp, takes_part);
    }
    if constexpr (backward) {
      RowState<T> state(call, at);
      gradients.sum_down(call, at, key_tile, scratch);
      if (takes_part) gradients.make_weights(call, at, key_tile, state, scratch);
      gradients.multiply_values(products, at.warp, takes_part);
      if (takes_part) gradients.finish(call, at, key_tile, state, scratch, false);
      sum_columns<rows>(gradients.d_downs, scratch);
    } else {
      gradients.pairs.open_down(call, at, first, gradients.d_gate_scores, scratch);
      sum_columns<rows>(gradients.pairs.downs, scratch);
    }
    const int key = first + lane_of_warp();
    if (at.warp % 2 != 0 || at.first >= at.queries || key >= call.keys) continue;
    T sum = sum_of_column<rows>(scratch, lane_of_warp());
    if (at.warp + 1 < static_cast<int>(blockDim.x) / 32) {
      sum += sum_of_column<rows>(scratch + warp_rows * pair_ld, lane_of_warp());
    }
    carried(call, backward ? call.d_down_sums : call.down_sums, at)[key] = sum;
  }
}

// Each unit's sum becomes that of the units before it, of the same head and key; backward: of those after it. sums
// [heads, units, keys]; a thread has a key of a head.
template <class T>
__global__ void exclusive_prefix_sums(T* sums, std::int64_t heads, std::int64_t units, std::int64_t keys,
                                      bool backward) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t n = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; n < heads * keys; n += step) {
    T* const own = sums + n / keys * units * keys + n % keys;
    double sum = 0;
    for (std::int64_t unit = 0; unit < units; ++unit) {
      T& here = own[(backward ? units - 1 - unit : unit) * keys];
      const T of_unit = here;
      here = static_cast<T>(sum);
      sum += static_cast<double>(of_unit);
    }
  }
}

template <bool backward, class Policy, class T>
void carry_sums(const AttentionCall& call, const DeviceCall<T>& device) {
  T* const sums = backward ? device.d_down_sums : device.down_sums;
  const std::int64_t heads = call.batch() * call.heads();
  const auto count = static_cast<std::size_t>(down_sum_count(heads, call.queries(), call.keys()));
  const cudaStream_t stream = context().stream;
  CUDA_CHECK(cudaMemsetAsync(sums, 0, count * sizeof(T), stream));  // of tiles that no row sees
  const auto bytes = [](auto width, auto family) {
    return sizeof(T) *
           static_cast<std::size_t>(product_elements<decltype(width)::value, most_rows<T>>(decltype(family)::value) +
                                    most_rows<T> * pair_ld);
  };
  visit_form<Policy>(device, bytes, [&](auto precision, auto width, auto family, std::size_t shared) {
    const int warps = warps_for<T>(call.queries());
    launch(attention_column_sums<T, decltype(precision)::value, decltype(width)::value, decltype(family)::value, Policy,
                                 backward>,
           grid_of(heads, call.queries(), warps * warp_rows, 1), static_cast<unsigned>(32 * warps), shared, stream,
           device);
  });
  constexpr unsigned threads = 256;
  launch(exclusive_prefix_sums<T>, blocks_for(heads * call.keys(), threads), threads, 0, stream, sums, heads,
         std::int64_t{device.down_units()}, call.keys(), backward);
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels

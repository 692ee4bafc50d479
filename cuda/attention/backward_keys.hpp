// Fused attention backward by keys: a block has 32 keys of one head. It takes the query heads that share them one after
// the other, and each head's tiles of rows from the diagonal down. In a first phase each warp owns rows and computes
// weights and gradients of scores. In a second phase each warp owns 16 keys and 32 columns, and sums over the rows:
// d_k, d_v and all other gradients of keys.
#pragma once

#include "cuda/attention/backward_keys_bf16.hpp"
#include "cuda/runtime/context.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

// Number of warps of a block, and of each warp's parts of 16 keys and 32 columns. Together they have 32 keys and D
// columns.
template <int D>
inline constexpr int key_warps = D / 16 < most_warps<float> ? D / 16 : most_warps<float>;
template <int D>
inline constexpr int key_parts = D / 16 / key_warps<D>;

// Number of elements of a tile of pairs in shared memory. These tiles follow the operands of products: weights,
// d_scores, and if needed d_gate_scores and d_logits.
template <int D>
inline constexpr int pair_elements = key_warps<D>* warp_rows* pair_ld;

// The results of a warp: part p of its lines and columns.
template <class T, int D>
struct KeyAccumulators {
  T values[key_parts<D>][2][columns] = {};

  __device__ static int keys_of(int warp, int part) { return (warp + key_warps<D> * part) % 2 * warp_rows; }
  __device__ static int columns_of(int warp, int part) { return (warp + key_warps<D> * part) / 2 * tile; }

  // += pairs^T rows
  template <MatmulPrecision precision>
  __device__ void add(int warp, const T* pairs, const T* row_tile) {
    TALLY_UNROLL
    for (int p = 0; p < key_parts<D>; ++p) {
      multiply_tile<precision>(values[p], ByColumn<T>{pairs + keys_of(warp, p), pair_ld},
                               ByColumn<T>{row_tile + columns_of(warp, p), ld_of<D>}, key_warps<D> * warp_rows);
    }
  }
  // of_block: the part of x that the block writes.
  __device__ void store(const Rows<T>& x, bool is_bf16, int warp, ResultTile of_block) const {
    TALLY_UNROLL
    for (int p = 0; p < key_parts<D>; ++p) {
      ResultTile own = of_block;
      own.first_row += keys_of(warp, p);
      own.first_column += columns_of(warp, p);
      store_rows(x, is_bf16, own, values[p]);
    }
  }
};

template <class T, MatmulPrecision precision, int D, Family family, class Mod>
__global__ void __launch_bounds__(32 * most_warps<float>, 2)
    attention_backward_keys(const __grid_constant__ DeviceCall<T> call) {
  SHARED_DYNAMIC(T, memory);
  constexpr int rows = key_warps<D> * warp_rows;
  const int slice = slice_of_block(), key_tile = static_cast<int>(blockIdx.y), first_key = key_tile * tile;
  const int count = static_cast<int>(call.keys - first_key < tile ? call.keys - first_key : tile);
  const int before = call.keys - call.queries;  // keys before the first query
  const int first_tile = first_key > before ? (first_key - before) / rows : 0;

  const int key_heads = call.heads / call.gqa_group_size, warp = static_cast<int>(threadIdx.x) / 32;
  const int batch = static_cast<int>(blockIdx.x) / key_heads, key_head = static_cast<int>(blockIdx.x) % key_heads;
  const int first_head = key_head * call.gqa_group_size;
  using Products = BackwardProducts<T, precision, D, rows>;
  Products products(call, batch, first_head, memory);
  T* const weights = memory + product_elements<D, rows>(family);
  T* const d_scores = weights + pair_elements<D>;
  T* const d_gate_scores = d_scores + pair_elements<D>;
  T* const d_logits = d_scores + (family == Family::gated ? 2 : 1) * pair_elements<D>;
  products.template each<family>([&](auto& product) { product.set_keys(first_key, count); });

  KeyAccumulators<T, D> d_k, d_v, d_gate_k;
  for (int head = first_head; head < first_head + call.gqa_group_size; ++head) {
    products.template each<family>([&](auto& product) { product.head = head; });
    double column_sum = 0;  // for the key threadIdx.x
    for (int row_tile = first_tile; row_tile * rows < call.queries; ++row_tile) {
      const int first_row = row_tile * rows;
      const int row_count = static_cast<int>(call.queries - first_row < rows ? call.queries - first_row : rows);
      const ThreadRows at(call, first_row, batch, head);
      if (!at.block_sees(call, row_count, first_key, count)) continue;
      __syncthreads();  // all reads of the previous tiles are done
      products.template each<family>([&](auto& product) {
        product.set_rows(first_row, row_count);
        if (!product.whole()) product.load_keys(0);
      });
      __syncthreads();

      const int warp_tile = at.warp * warp_rows * pair_ld;
      const bool takes_part = at.warp_sees(first_key);
      PairGradients<T, family, Mod> gradients(call, at, key_tile);
      RowState<T> state(call, at);
      gradients.multiply_scores(products, at.warp, takes_part);
      if (takes_part) gradients.make_weights(call, at, key_tile, state, d_scores + warp_tile);
      gradients.multiply_values(products, at.warp, takes_part);
      if (takes_part) {
        TALLY_UNROLL
        for (int r = 0; r < 2; ++r) {
          if (traits_of<Mod>.sums && gradients.pairs.takes_part(r)) {
            state.run[r] = call.d_prefix_sums[at.index(call, r) * call.tiles() + key_tile];
          }
        }
        gradients.finish(call, at, key_tile, state, d_scores + warp_tile, false);
      }
      // Zeros if the warp's tile is masked.
      store_pairs(weights + warp_tile, gradients.weights);
      store_pairs(d_scores + warp_tile, gradients.d_scores);
      if constexpr (family == Family::gated) store_pairs(d_gate_scores + warp_tile, gradients.d_gate_scores);
      if (call.by_column) store_pairs(d_logits + warp_tile, gradients.d_logits);
      __syncthreads();
      const auto rows_of = [&](const HeadProduct<T, D>& product) {
        if (product.whole()) return;
        product.load_rows(slice);
        __syncthreads();
      };
      constexpr bool to_scores = reaches_scores<family, Mod>();
      if constexpr (to_scores) rows_of(products.score);
      rows_of(products.value);
      if constexpr (family == Family::gated) rows_of(products.gate);

      d_v.template add<precision>(at.warp, weights, products.value.row_tile);
      if constexpr (to_scores) d_k.template add<precision>(at.warp, d_scores, products.score.row_tile);
      if constexpr (family == Family::gated) {
        d_gate_k.template add<precision>(at.warp, d_gate_scores, products.gate.row_tile);
      }
      if (call.by_column && static_cast<int>(threadIdx.x) < tile) {
        for (int i = 0; i < row_count; ++i) {
          column_sum += static_cast<double>(d_logits[i * pair_ld + static_cast<int>(threadIdx.x)]);
        }
      }
    }
    for (int n = 0; n < call.bias_count && slice == 0 && static_cast<int>(threadIdx.x) < count; ++n) {
      const Rows<double> d_column = call.biases[n].d.column.as_double();
      if (d_column.data != nullptr)
        d_column.head(batch, head).at(first_key + static_cast<int>(threadIdx.x)) = column_sum;
    }
  }

  const auto store = [&](const Rows<T>& x, bool is_bf16, const KeyAccumulators<T, D>& sums, int width) {
    sums.store(x, is_bf16, warp, {batch, key_head, first_key, first_key + count, slice * D, width});
  };
  store(call.d.k, call.is_bf16.d_k, d_k, call.width);
  store(call.d.v, call.is_bf16.d_v, d_v, call.value_width);
  if constexpr (family == Family::gated) store(call.d.score_mod.gate_key, false, d_gate_k, call.gate_width);
}

template <class Mod, class T>
void backward_keys(const AttentionCall& call, const DeviceCall<T>& device) {
  if constexpr (takes_bf16<Mod> && std::is_same_v<T, float>) {
    if (call.q.dtype == DType::bf16) return backward_keys_bf16<Mod>(call, device);
  }
  const auto bytes = [&](auto width, Family family) {
    constexpr int D = decltype(width)::value;
    const int tiles = 2 + (family == Family::gated ? 1 : 0) + (device.by_column ? 1 : 0);
    return sizeof(T) *
           static_cast<std::size_t>(product_elements<D, key_warps<D> * warp_rows>(family) + tiles * pair_elements<D>);
  };
  visit_form<Mod>(device, bytes, [&](auto precision, auto width, auto family, std::size_t shared) {
    constexpr int D = decltype(width)::value;
    const std::int64_t slices =
        std::max({parts_of<D>(device.width), parts_of<D>(device.value_width), parts_of<D>(device.gate_width)});
    launch(attention_backward_keys<T, decltype(precision)::value, D, decltype(family)::value, Mod>,
           grid_of(call.batch() * key_heads(call), call.keys(), tile, slices), static_cast<unsigned>(32 * key_warps<D>),
           shared, context().stream, device);
  });
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels

// The channels of a policy (core/attention/pair.hpp, needs.channels) for the pairs that a thread has of a tile: its two
// rows and eight columns go along all of them, with their numbers read from memory, where neighbouring threads read the
// same ones.
#pragma once

#include "cuda/attention_scan.hpp"

namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels {

template <class Policy>
inline constexpr bool has_channels = Policy::needs.channels.any();

// The numbers of one channel for all pairs of a thread.
template <class T, class Policy>
struct ChannelNumbers {
  static constexpr ChannelNeeds needs = Policy::needs.channels;
  static constexpr auto at_least_one(int count) { return static_cast<std::size_t>(count > 0 ? count : 1); }
  T of_query[2][at_least_one(needs.of_query)], of_key[columns][at_least_one(needs.of_key)],
      of_channel[at_least_one(needs.of_channel)];

  // Rows and keys behind the last read its numbers: their pairs are not seen.
  __device__ ChannelNumbers(const DeviceCall<T>& call, const ThreadRows& at, int first_key, int channel) {
    TALLY_UNROLL
    for (int n = 0; n < needs.of_query; ++n) {
      const Rows<T> own = call.channel_query.head(at.batch, at.head);
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        of_query[r][n] = own.at(at.valid(r) ? at.row(r) : at.queries - 1, n * call.channels + channel);
      }
    }
    TALLY_UNROLL
    for (int n = 0; n < needs.of_key; ++n) {
      const Rows<T> own = call.channel_key.head(at.batch, at.head / call.heads_of_key);
      TALLY_UNROLL
      for (int c = 0; c < columns; ++c) {
        const int key = first_key + tile_column(c);
        of_key[c][n] = own.at(key < call.keys ? key : call.keys - 1, n * call.channels + channel);
      }
    }
    TALLY_UNROLL
    for (int n = 0; n < needs.of_channel; ++n) of_channel[n] = call.channel_numbers[n * call.channels + channel];
  }
  // The term of pair (r, c).
  template <bool differentiates>
  __device__ auto term(const attention::PairIn<T, Policy, differentiates, true>& pair, int r, int c) const {
    const auto number = [&](std::size_t n) {
      const int index = static_cast<int>(n);
      return index < needs.of_query                  ? of_query[r][index]
             : index < needs.of_query + needs.of_key ? of_key[c][index - needs.of_query]
                                                     : of_channel[index - needs.of_query - needs.of_key];
    };
    return attention::term_of(attention::TermIn<T, Policy, differentiates>(pair, number));
  }
};

// The sum over the eight lanes of a column, of which each has its rows; each gets it.
template <class T>
__device__ T sum_of_lane_column(T x) {
  TALLY_UNROLL
  for (int by = row_lanes; by < 32; by *= 2) x += __shfl_xor_sync(whole_warp, x, by);
  return x;
}

// To the gradients of the vectors of a block's keys, first_key .. first_key + count - 1 of this head: what the rows of
// its warps, of which there are `warps`, give by way of each term. d_term(numbers, r, c, f) calls f.operator()<n>(d)
// with that of number n of the key. A few channels at a time: warps write their sums to `scratch`, as large as a tile
// of pairs of the block, then a thread adds up those of a key in the order of the warps. By all threads of the block.
template <class Policy, int warps, class T, class DTerm>
__device__ void add_to_key_vectors(const DeviceCall<T>& call, const ThreadRows& at, int first_key, int count,
                                   T* scratch, const DTerm& d_term) {
  constexpr int numbers = Policy::needs.channels.of_key, at_once = warp_rows * pair_ld / tile / numbers;
  const Rows<T> d = call.d_channel_key.head(at.batch, at.head / call.heads_of_key);
  for (int begin = 0; begin < call.channels; begin += at_once) {
    const int end = begin + at_once < call.channels ? begin + at_once : call.channels;
    TALLY_ROLLED
    for (int channel = begin; channel < end; ++channel) {
      T sums[columns][static_cast<std::size_t>(numbers)] = {};
      const ChannelNumbers<T, Policy> own(call, at, first_key, channel);
      TALLY_UNROLL
      for (int r = 0; r < 2; ++r) {
        TALLY_UNROLL
        for (int c = 0; c < columns; ++c) d_term(own, r, c, [&]<int n>(T x) { sums[c][n] += x; });
      }
      TALLY_UNROLL
      for (int c = 0; c < columns; ++c) {
        TALLY_UNROLL
        for (int n = 0; n < numbers; ++n) {
          const T sum = sum_of_lane_column(sums[c][n]);
          const int line = (at.warp * at_once + channel - begin) * numbers + n;
          if (lane_of_warp() < row_lanes) scratch[line * tile + tile_column(c)] = sum;
        }
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < (end - begin) * numbers * tile; i += static_cast<int>(blockDim.x)) {
      const int key = i % tile, line = i / tile;
      if (key >= count) continue;
      // Warp by warp to what is there, so that the number of warps decides no bits.
      T& target = d.at(first_key + key, line % numbers * call.channels + begin + line / numbers);
      T sum = target;
      for (int warp = 0; warp < warps; ++warp) sum += scratch[(warp * at_once * numbers + line) * tile + key];
      target = sum;
    }
    __syncthreads();
  }
}

}  // namespace tally::TALLY_CUDA_NAMESPACE::attention_kernels

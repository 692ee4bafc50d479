// The channels of a policy (core/attention/pair.hpp, needs.channels) in the loops over its pairs: each pair goes along
// all of them. What is no part of a policy's own code is inlined, as in core/cpu/attention_pair_loops.hpp.
#pragma once

#include "core/cpu/attention_pair_lanes.hpp"

namespace tally::cpu {

// One channel of a vector of rows, from `first` on, and key j.
template <class V, class Policy, bool differentiates>
TALLY_INLINE auto term_at(const ChannelViews<Scalar<V>>& all,
                          const attention::PairIn<V, Policy, differentiates, true>& pair, std::int64_t first,
                          std::int64_t j, std::int64_t channel) {
  constexpr std::int64_t of_query = Policy::needs.channels.of_query, of_key = Policy::needs.channels.of_key;
  const attention::TermIn<V, Policy, differentiates> p(pair, [&](std::size_t n) TALLY_INLINED -> V {
    const auto number = static_cast<std::int64_t>(n);
    if (number < of_query) return load_vector<V>(all.query + (number * all.channels + channel) * tile_rows + first);
    if (number < of_query + of_key) {
      return splat<V>(all.key[j * all.key_width + (number - of_query) * all.channels + channel]);
    }
    return splat<V>(all.numbers[(number - of_query - of_key) * all.channels + channel]);
  });
  return attention::term_of(p);
}

// p.terms
template <class V, class Policy>
TALLY_INLINE V sum_of_terms(const ChannelViews<Scalar<V>>& all, const attention::PairIn<V, Policy, false, true>& pair,
                            std::int64_t first, std::int64_t j) {
  V sum{};
  for (std::int64_t channel = 0; channel < all.channels; ++channel) {
    sum += term_at<V, Policy, false>(all, pair, first, j, channel).value;
  }
  return sum;
}

// From the gradient of p.terms, 0 in lanes that do not see the key, to those of the channels' numbers. of_term(y) gets
// each term with its derivatives; take<input>(d, y) is what y's input gets.
template <class V, class Policy, class OfTerm, class Take>
TALLY_INLINE void terms_gradient(const ChannelViews<Scalar<V>>& all,
                                 const attention::PairIn<V, Policy, true, true>& pair, std::int64_t first,
                                 std::int64_t j, bool begins, const V& d_terms, const OfTerm& of_term,
                                 const Take& take) {
  constexpr std::int64_t lanes = lanes_of<V>;
  constexpr int of_query = Policy::needs.channels.of_query, of_key = Policy::needs.channels.of_key,
                first_input = attention::first_channel_input;
  for (std::int64_t channel = 0; channel < all.channels; ++channel) {
    const auto term = term_at<V, Policy, true>(all, pair, first, j, channel);
    of_term(term);
    attention::detail::each_input<(1u << of_query) - 1>([&]<int n>() TALLY_INLINED {
      Scalar<V>* const target = all.d_query + (n * all.channels + channel) * tile_rows + first;
      store_vector<V>(target, load_vector<V>(target) + take.template operator()<first_input + n>(d_terms, term));
    });
    attention::detail::each_input<(1u << of_key) - 1>([&]<int n>() TALLY_INLINED {
      Scalar<V>* const target = all.d_key_lanes + (n * all.channels + channel) * lanes;
      const V d = take.template operator()<first_input + of_query + n>(d_terms, term);
      store_vector<V>(target, begins ? d : load_vector<V>(target) + d);
    });
  }
}

// What all rows of the tile have given to key j.
template <class V>
TALLY_INLINE void close_key(const ChannelViews<Scalar<V>>& all, std::int64_t j) {
  for (std::int64_t n = 0; n < all.key_width; ++n) {
    const V of_lanes = load_vector<V>(all.d_key_lanes + n * lanes_of<V>);
    all.d_key[j * all.d_key_step + n] += sums_after(of_lanes)[0] + of_lanes[0];
  }
}

}  // namespace tally::cpu

// The attention mask: a query attends to earlier keys in its window and its chunk, and always to the sink tokens.
#pragma once

#include <cstdint>
#include <limits>

#include "core/math/random.hpp"

namespace tally {

// Query i and key j are both counted from the first key, from 0. i attends to ("sees") j if j <= i and
//   j < first, or (i - j < window and floor(i / chunk) = floor(j / chunk)).
// A window of W keys includes the query's own key (arXiv 2004.05150; other programs do not count it).
struct AttentionMask {
  static constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // limit of each number
  std::int64_t window = 0;                                                        // 0: no limit
  std::int64_t chunk = 0;                                                         // 0: no limit
  std::int64_t first = 0;                                                         // number of sink tokens
  bool operator==(const AttentionMask&) const = default;

  TALLY_HOST_DEVICE bool is_causal_only() const { return window == 0 && chunk == 0; }
  // The first key that this query sees after the sink tokens. It never decreases from one query to the next.
  TALLY_HOST_DEVICE std::int64_t begin(std::int64_t query) const {
    const std::int64_t of_window = window > 0 && query >= window ? query - window + 1 : 0;
    const std::int64_t of_chunk = chunk > 0 ? query / chunk * chunk : 0;
    return of_window > of_chunk ? of_window : of_chunk;
  }
  // The queries key .. end(key) - 1 see this key.
  TALLY_HOST_DEVICE std::int64_t end(std::int64_t key) const {
    constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    if (key < first) return never;
    const std::int64_t of_window = window > 0 ? key + window : never;
    const std::int64_t of_chunk = chunk > 0 ? (key / chunk + 1) * chunk : never;
    return of_window < of_chunk ? of_window : of_chunk;
  }
  TALLY_HOST_DEVICE bool attends(std::int64_t query, std::int64_t key) const {
    return key <= query && query < end(key);
  }
  // Whether any query in first_query .. last_query sees any key in first_key .. last_key.
  TALLY_HOST_DEVICE bool attends_any(std::int64_t first_query, std::int64_t last_query, std::int64_t first_key,
                                     std::int64_t last_key) const {
    return first_key <= last_query && (first_key < first || last_key >= begin(first_query));
  }
  // Whether every such query sees every such key.
  TALLY_HOST_DEVICE bool attends_all(std::int64_t first_query, std::int64_t last_query, std::int64_t first_key,
                                     std::int64_t last_key) const {
    return last_key <= first_query && (last_key < first || first_key >= begin(last_query));
  }
  // Number of keys that the query sees.
  std::int64_t count(std::int64_t query) const {
    const std::int64_t own = begin(query), always = own < first ? own : first;
    return query - own + 1 + always;
  }
};

}  // namespace tally

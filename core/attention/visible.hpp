// What a query sees: of the keys up to itself those of its window and of its chunk, and the first ones always.
#pragma once

#include <cstdint>
#include <limits>

#include "core/random.hpp"

namespace tally {

// Query i and key j, both counted from the first key, from 0; i sees j where j <= i and
//   j < first, or (i - j < window and floor(i / chunk) = floor(j / chunk)).
// So a window of W is W keys with the own one (arXiv 2004.05150; other programs count W without it).
struct Visible {
  static constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // of each number
  std::int64_t window = 0;                                                        // 0: no limit
  std::int64_t chunk = 0;                                                         // 0: no limit
  std::int64_t first = 0;
  bool operator==(const Visible&) const = default;

  TALLY_HOST_DEVICE bool everything() const { return window == 0 && chunk == 0; }
  // The first key that this query sees apart from the `first` ones. It never falls from one query to the next.
  TALLY_HOST_DEVICE std::int64_t begin(std::int64_t query) const {
    const std::int64_t of_window = window > 0 && query >= window ? query - window + 1 : 0;
    const std::int64_t of_chunk = chunk > 0 ? query / chunk * chunk : 0;
    return of_window > of_chunk ? of_window : of_chunk;
  }
  // The queries that see a key are those from itself up to this one, without it.
  TALLY_HOST_DEVICE std::int64_t end(std::int64_t key) const {
    constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    if (key < first) return never;
    const std::int64_t of_window = window > 0 ? key + window : never;
    const std::int64_t of_chunk = chunk > 0 ? (key / chunk + 1) * chunk : never;
    return of_window < of_chunk ? of_window : of_chunk;
  }
  TALLY_HOST_DEVICE bool sees(std::int64_t query, std::int64_t key) const { return key <= query && query < end(key); }
  // Whether a query in first_query .. last_query sees a key in first_key .. last_key, all of these or some.
  TALLY_HOST_DEVICE bool sees_any(std::int64_t first_query, std::int64_t last_query, std::int64_t first_key,
                                  std::int64_t last_key) const {
    return first_key <= last_query && (first_key < first || last_key >= begin(first_query));
  }
  // Whether every one of these queries sees every one of these keys.
  TALLY_HOST_DEVICE bool sees_all(std::int64_t first_query, std::int64_t last_query, std::int64_t first_key,
                                  std::int64_t last_key) const {
    return last_key <= first_query && (last_key < first || first_key >= begin(last_query));
  }
  // Number of keys that a query sees.
  std::int64_t count(std::int64_t query) const {
    const std::int64_t own = begin(query), always = own < first ? own : first;
    return query - own + 1 + always;
  }
};

}  // namespace tally

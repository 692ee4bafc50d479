// What calls of tiled attention on the CPU made of their tiles, for tests: values do not tell whether a tile that does
// not matter was computed all the same.
#pragma once

#include <cstdint>

namespace tally::cpu {

// Tiles of rows and keys, those left aside of which no row sees a key.
struct TileCounts {
  std::int64_t computed = 0;
  std::int64_t settled = 0;   // of these, without gates and places: every sum was at the table's end before them
  std::int64_t left_out = 0;  // as no weight in them matters

  TileCounts& operator+=(const TileCounts& more);
};

// While it lives, calls that this thread makes add theirs, forward and backward.
class CountTiles {
 public:
  CountTiles();
  ~CountTiles();
  CountTiles(const CountTiles&) = delete;
  CountTiles& operator=(const CountTiles&) = delete;

  const TileCounts& counts() const { return counts_; }

 private:
  TileCounts counts_;
  TileCounts* before_;
};

}  // namespace tally::cpu

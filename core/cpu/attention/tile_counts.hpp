// Counts of computed and skipped tiles of fused attention on the CPU. Tests need them, because results are the same if
// a negligible tile is computed after all.
#pragma once

#include <cstdint>

namespace tally::cpu {

// Tiles of rows and keys. Fully masked tiles are not counted.
struct TileCounts {
  std::int64_t computed = 0;
  std::int64_t saturated = 0;  // computed without gates and places, because every sum was already saturated
  std::int64_t left_out = 0;   // skipped, because all weights are negligible

  TileCounts& operator+=(const TileCounts& more);
};

// While it lives, calls by this thread are counted, forward and backward.
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

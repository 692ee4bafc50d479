// Randomised positions: training draws the positions of a batch from a range that is longer than its sequences, so that
// positions of longer texts are trained, too. Integers: arXiv 2305.16843. Reals: arXiv 2602.14050.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/math/random.hpp"
#include "core/tensor.hpp"

namespace tally {

class SequenceModel;

struct RandomPositions {
  bool whole = true;       // integers, each at most once; otherwise reals
  std::int64_t range = 0;  // L: they are at least 0 and less than L

  // The positions of `length` tokens: uniform draws, sorted, f64 [length] on the host.
  Tensor draw(std::int64_t length, const RandomStream& stream) const;
  // Throws Error if the encodings of the model do not read positions, or cannot read these. `name`: of the encoding.
  void check_read_by(SequenceModel& model, const std::string& name) const;
};

}  // namespace tally

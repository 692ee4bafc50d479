#include "nn/encoding/random_positions.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "autograd/node.hpp"
#include "core/error.hpp"
#include "nn/model.hpp"

namespace tally {

Tensor RandomPositions::draw(std::int64_t length, const RandomStream& stream) const {
  Rng rng(stream);
  std::vector<double> drawn;
  if (whole) {
    check(length <= range, "positions", "{} tokens have no different whole positions below {}; choose a larger range",
          length, range);
    // Floyd's method: every subset of this size is equally likely.
    std::set<std::int64_t> chosen;
    for (std::int64_t last = range - length; last < range; ++last) {
      const auto position = static_cast<std::int64_t>(rng.below(static_cast<std::uint32_t>(last + 1)));
      chosen.insert(chosen.contains(position) ? last : position);
    }
    drawn.assign(chosen.begin(), chosen.end());
  } else {
    for (std::int64_t n = 0; n < length; ++n) {
      drawn.push_back(static_cast<double>(rng.bits()) * 0x1p-32 * static_cast<double>(range));
    }
    std::sort(drawn.begin(), drawn.end());
  }
  return Tensor::from(drawn, {length});
}

void RandomPositions::check_read_by(SequenceModel& model, const std::string& name) const {
  constexpr std::int64_t length = 2;
  const NoGrad only_values;
  bool read = false;
  ForwardContext pass;
  pass.positions.drawn = Tensor::empty({length}, DType::f64, model.device());
  pass.positions.drawn.fill(0);
  pass.positions.end = range;
  pass.positions.read = &read;
  Tensor tokens = Tensor::empty({1, length}, DType::i32, model.device());
  tokens.fill(0);
  model.hidden(tokens, pass);
  check(read, "positions", "{} reads no positions, so random positions have no effect", name);
  check(whole || model.rows_by_position() == 0, "positions",
        "{} has one row for each whole position; choose random-positions = integers", name);
}

}  // namespace tally

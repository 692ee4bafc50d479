#include "autograd/score.hpp"

#include <utility>

#include "core/error.hpp"

namespace tally {

void Score::set_scan(Scan value) {
  check(!scan.has_value(), "encoding",
        "two parts of the sum each want a running sum along the keys, but a score has one: each such encoding defines "
        "what the sum means; keep one of them (biases and rotations may join it)");
  scan = std::move(value);
}

void Score::set_normaliser(Normaliser value) {
  check(normaliser.is_softmax(), "encoding",
        "two parts of the sum each take the place of the softmax: keep one of them (biases and rotations may join it)");
  normaliser = std::move(value);
}

}  // namespace tally

// A policy beside the scan: the tile of a policy in a call where it is the scan. Only for
// core/cpu/attention_worker.hpp.
#pragma once

#include "core/cpu/attention_shapes.hpp"

namespace tally::cpu {

template <class T>
class Beside {
 public:
  Beside(const AttentionCall& call, const AttentionGradients* gradients, Arena& arena) : call_(call) {
    call_.scan = call.beside;
    call_.prefix_sums = call_.down_sums = {};
    if (gradients != nullptr) gradients_.scan = gradients->beside;
    if (call.beside.policy != nullptr) tile_ = make_pair<T>(call_, gradients != nullptr ? &gradients_ : nullptr, arena);
  }
  // The tile refers to this object.
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // Null where there is none.
  ScanTile<T>* tile() const { return tile_; }

 private:
  AttentionCall call_;
  AttentionGradients gradients_;
  ScanTile<T>* tile_ = nullptr;
};

}  // namespace tally::cpu

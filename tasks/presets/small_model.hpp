// What the quick presets of the small synthetic tasks share: model and optimiser, without the learning rate.
#pragma once

#include <string>
#include <string_view>

namespace tally {

// Those settings and `more`, which has the learning rate.
inline std::string small_model_with(std::string_view more) {
  return "model.layers=2 model.width=64 model.init=fan-in optimiser.beta2=0.99 optimiser.weight-decay=0.1 "
         "optimiser.decay=matrices optimiser.clip=1 optimiser.schedule=linear optimiser.warmup=50 "
         "eval-count=250 eval-batch=100 " +
         std::string(more);
}

}  // namespace tally

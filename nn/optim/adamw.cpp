// AdamW: Adam with decoupled weight decay (nn/optim/adam.hpp).
#include "nn/optim/adam.hpp"

namespace tally {
namespace {

class AdamW final : public Adam {
 public:
  AdamW(const OptimizerOptions& options, const AdamOptions& own, NamedTensors parameters)
      : Adam(options, own, std::move(parameters), Decay::decoupled) {}
};

}  // namespace
}  // namespace tally

TALLY_OPTIMIZER(adamw, AdamOptions, AdamW, "adam with decoupled weight decay (arXiv 1711.05101)");

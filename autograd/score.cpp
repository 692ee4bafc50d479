#include "autograd/score.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace tally {

bool is_compiled(const PairPolicy& policy, Device device) {
  // Memory is counted as on the device for which it is.
  const DeviceType type = device.type == DeviceType::meta ? static_cast<DeviceType>(device.index) : device.type;
  switch (type) {
    case DeviceType::cuda: return policy.cuda != nullptr;
    case DeviceType::cuda_host: return policy.cuda_host != nullptr;
    default: return policy.loops != nullptr;
  }
}

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

bool Score::takes_score_alone() const {
  const Pair* const pair = scan ? std::get_if<Pair>(&*scan) : nullptr;
  return pair != nullptr && !pair->policy->needs.biased && !pair->policy->needs.adds;
}

bool Score::tiled_on(Device device) const {
  const Pair* const pair = scan ? std::get_if<Pair>(&*scan) : nullptr;
  return pair == nullptr || is_compiled(*pair->policy, device);
}

void Score::check_policy() const {
  const Pair* const pair = scan ? std::get_if<Pair>(&*scan) : nullptr;
  check(pair == nullptr || !pair->policy->needs.spends || normaliser.kind == Normaliser::Kind::exp, "attention",
        "logits of a policy that spends are for the normaliser exp");
  const bool product =
      std::any_of(biases.begin(), biases.end(), [](const Bias& bias) { return std::holds_alternative<Product>(bias); });
  if (!product || !takes_score_alone()) return;
  check(false, "encoding", "the policy '", pair->policy->name,
        "' reads the score of q and k alone, of which a product is a part; keep one of them");
}

}  // namespace tally

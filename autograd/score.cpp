#include "autograd/score.hpp"

#include <algorithm>
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

bool MovedProduct::fits(Device device) {
  const bool counts = device.type == DeviceType::meta && device.index == static_cast<int>(DeviceType::cpu);
  return device.type == DeviceType::cpu || counts;
}

void Score::keep_gates(const Tensor& q, const Tensor& k) {
  const auto keep = [&](auto& of_scan) {
    if constexpr (requires { of_scan.gates; }) {
      if (!of_scan.gates.query.defined()) of_scan.gates = {q, k};
    } else {
      if (of_scan.policy->needs.other && !of_scan.other.query.defined()) of_scan.other = {q, k};
    }
  };
  if (scan) std::visit(keep, *scan);
}

bool Score::takes_score_alone() const {
  const Pair* const pair = scan ? std::get_if<Pair>(&*scan) : nullptr;
  return pair != nullptr && !pair->policy->needs.biased && !pair->policy->needs.adds;
}

void Score::check_policy() const {
  const Pair* const pair = scan ? std::get_if<Pair>(&*scan) : nullptr;
  check(pair == nullptr || !pair->policy->needs.spends || normaliser.kind == Normaliser::Kind::exp, "attention",
        "logits of a policy that spends are for the normaliser exp");
  const bool product =
      std::any_of(biases.begin(), biases.end(), [](const Bias& bias) { return std::holds_alternative<Product>(bias); });
  if (!(product || moved.has_value()) || !takes_score_alone()) return;
  check(false, "encoding", "the policy '", pair->policy->name, "' reads the score of q and k alone, ",
        product ? "of which a product is a part" : "in whose place another product stands", "; keep one of them");
}

}  // namespace tally

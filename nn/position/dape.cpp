// Data-adaptive positions (DAPE, arXiv 2405.14722): a network over the heads computes a bias from the scores of a pair
// and a bias of the distance (nn/encoding/logit_network.hpp). For each pair separately, vectors over the heads:
//   l = s + b + W2 leaky(W1 [s ; b] + b1) + b2.
// b is the bias of the encoding that `bias` names, or nothing. In a combination, s includes the terms of the others.
#include <string>

#include "nn/encoding/encoding.hpp"
#include "nn/encoding/logit_network.hpp"

namespace tally {
namespace {

struct DapeOptions final : OptionsOf<DapeOptions> {
  std::string bias = "kerple";
  LogitNetworkOptions network;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("bias", bias, {"none", "alibi", "kerple"}, "distance bias that the network reads and corrects");
    network.visit(visitor);
  }
};

struct Dape final : LogitNetwork {
  Dape(const EncodingSetup& setup, const DapeOptions& options) : LogitNetwork(setup, options.network, options.bias) {}
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(dape, DapeOptions, Dape, "a network over the heads changes the scores of each pair",
               "l = s + b + W2 leaky(W1 [s ; b] + b1) + b2, vectors over the heads;  b: a distance bias\n"
               "leaky(x) = x for x > 0, else 0.01 x;  W1 [N, 2 H], W2 [H, N], N = 32\n"
               "materialised: saves about (N + 2 H) B T² numbers a layer",
               "DAPE: Zheng et al. 2024, arXiv 2405.14722");

// Data-adaptive positions, the second version (DAPE-V2, arXiv 2410.04798): as in dape.cpp, but both layers of the
// network are convolutions along the keys and include the neighbours of a pair (nn/encoding/logit_network.hpp), * a
// convolution:
//   l = s + b + W2 * leaky(W1 * [s ; b] + b1) + b2.
// s and b are 0 for masked pairs. At the last key of a row the second layer reads the hidden layer one key further; its
// value there is not 0. The released code has no such key in the last row of a batch, so that row changes when its text
// continues. Here all rows have it; with `edge` = authors it is missing as in that code.
#include <string>

#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"
#include "nn/encoding/logit_network.hpp"

namespace tally {
namespace {

struct Dape2Options final : OptionsOf<Dape2Options> {
  std::string bias = "kerple";
  std::int64_t kernel = 3;
  std::string edge = "zeros";
  LogitNetworkOptions network;

  void visit(OptionVisitor& visitor) override {
    visitor.choice("bias", bias, {"none", "alibi", "kerple"}, "the bias of distance that the network sees and adds to");
    visitor.integer("kernel", kernel, "keys that each convolution sees, the pair's own in their middle; odd", 1,
                    (1 << 8) - 1);
    visitor.choice(
        "edge", edge, {"zeros", "authors"},
        "authors: as in their code the hidden layer ends with the text, so that its last kernel/2 rows change "
        "where it goes on, and a text token by token is not what it is as a whole");
    network.visit(visitor);
  }
  void validate() const override {
    check(kernel % 2 == 1, "dape2", "kernel = {} must be odd: the pair's own key is in the middle", kernel);
  }
};

struct Dape2 final : LogitNetwork {
  Dape2(const EncodingSetup& setup, const Dape2Options& options)
      : LogitNetwork(setup, options.network, options.bias, options.kernel, options.edge == "authors") {}
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(dape2, Dape2Options, Dape2, "a convolution over heads and neighbouring keys changes the scores",
               "l = s + b + W2 * leaky(W1 * [s ; b] + b1) + b2;  * along the keys;  b a bias of distance\n"
               "leaky(x) = x for x > 0, else 0.01 x;  W1 [N, 2 H, 3], W2 [H, N, 3], N = 32\n"
               "s and b are 0 where a pair is masked, and the hidden layer before key 0\n"
               "edge = authors: and behind the last key of the text; else the hidden layer goes on there\n"
               "materialised, not in tiles: keeps about (N + 4 H) B T² numbers a layer",
               "DAPE-V2: Zheng et al. 2024, arXiv 2410.04798");

// No position encoding (NoPE, arXiv 2305.19466): l_ij = s_ij. A causal model infers order only from the mask.
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

class None final : public Encoding {};

}  // namespace
}  // namespace tally

TALLY_ENCODING(none, NoOptions, None, "no position encoding, only the causal mask", "l_ij = s_ij",
               "NoPE: Kazemnejad et al. 2023, arXiv 2305.19466", .reads_heads = false, .also_called = "nope");

// Forgetting attention (FoX, the Forgetting Transformer, arXiv 2503.02130, section 3): every token says, by what it is,
// how much is left of all before it.
//   f_t = sigmoid(w_f.x_t + b_f) per head,  l_ij = s_ij + sum_{u=j+1..i} log f_u
// As running sums L_t = sum_{u<=t} log f_u this is L_i - L_j: the bias on the diagonal is 0, and f_j does not act on
// key j itself.
#include "nn/encoding.hpp"
#include "nn/gates.hpp"

namespace tally {
namespace {

class Fox final : public Encoding {
 public:
  explicit Fox(const EncodingSetup& setup) : forget_(setup) {}

  void score(const AttentionInput& in, Score& score) const override { score.biases.emplace_back(forget_(in)); }

 private:
  ForgetGates forget_;
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(fox, NoOptions, Fox, "forget gates: each token lowers the scores of all before it",
               "f_t = sigmoid(w_f.x_t + b_f);  l_ij = s_ij + sum_{u=j+1..i} log f_u",
               "FoX: Lin et al. 2025, arXiv 2503.02130");

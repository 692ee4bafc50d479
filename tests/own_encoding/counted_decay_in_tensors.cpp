// The encoding of counted_decay.cpp as an idea is written first: in tensor operations, with T x T numbers and more.
#include "autograd/ops.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

class CountedDecayInTensors final : public Encoding {
 public:
  explicit CountedDecayInTensors(const EncodingSetup& setup)
      : key_heads_(setup.key_heads),
        rate_(setup.parameter("rate", {setup.heads, 1}, Fill::constant(0.1), Scope::layer)),
        gate_(setup.parameter("gate.weight", {setup.key_heads * setup.head_width, setup.width},
                              setup.start->linear_weight(setup.width), Scope::layer)) {}

  void score(const AttentionInput& in, Score& score) const override {
    const Tensor gate_keys = repeat_kv(split_heads(linear(in.x, gate_), key_heads_), in.q.size(1));
    const Tensor gates = sigmoid(matmul(in.q, transpose(gate_keys, 2, 3), in.scale));
    score.biases.push_back(Dense{negate(unsqueeze(rate_, 2) * causal_suffix_sum(gates))});
  }

 private:
  std::int64_t key_heads_;
  Tensor rate_;  // r [H, 1]
  Tensor gate_;  // W_g [G d, D]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(counted_decay_in_tensors, NoOptions, CountedDecayInTensors, "counted-decay in tensor operations",
               "as counted-decay", "none yet");

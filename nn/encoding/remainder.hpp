// The value that gets the leftover mass of a row, for encodings that replace the softmax by another softmax_rule
// (SoftmaxRule::rest).
#pragma once

#include <string>
#include <string_view>

#include "nn/encoding/encoding.hpp"

namespace tally {

struct RemainderOption {
  std::string value = "drop";

  // Option "remainder".
  void visit(OptionVisitor& visitor, std::string_view what);
};

// Parameters, with bias: remainder [H, d] zeros.
class Remainder {
 public:
  Remainder(const EncodingSetup& setup, const RemainderOption& option);
  // r [B, H, T, d]: nothing, the token's own value as it is in the sum, or a learned vector for each head
  Tensor operator()(const AttentionInput& in) const;

 private:
  bool to_value_;
  Tensor bias_;
};

}  // namespace tally

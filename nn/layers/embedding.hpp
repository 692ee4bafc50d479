// y = table[id].
#pragma once

#include "nn/layers/init.hpp"
#include "nn/module.hpp"

namespace tally {

// Parameters: weight [V, D].
class Embedding final : public Module {
 public:
  Embedding(const Initializer& start, std::int64_t vocabulary, std::int64_t width, Tied tied = Tied::no);
  // ids i32 of any shape, on the CPU or the weight's device -> [..., D] on the weight's device. Throws Error naming the
  // first id outside 0..V-1; for ids already on a GPU such a row is NaN.
  Tensor forward(const Tensor& ids) const;
  // For an output projection that shares the weight.
  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

}  // namespace tally

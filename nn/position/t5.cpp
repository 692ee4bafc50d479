// Relative position biases of T5 (arXiv 1910.10683, section 2.1; buckets of the released code, 32 of them, one-sided):
//   l_ij = s_ij + b_h[bucket(i-j)],  b [H, 32]
//   bucket(n) = n for n < 16, else min(31, 16 + floor(ln(n/16) / ln(128/16) * 16)): one bucket for all n >= 113
#include <algorithm>
#include <cmath>

#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

constexpr std::int64_t bucket_count = 32, exact_buckets = 16;
constexpr double max_distance = 128;

double bucket_of(std::int64_t distance) {
  const double n = static_cast<double>(distance), exact = exact_buckets;
  if (n < exact) return n;
  return std::min(bucket_count - 1.0, exact + std::floor(std::log(n / exact) / std::log(max_distance / exact) * exact));
}

class T5 final : public Encoding {
 public:
  explicit T5(const EncodingSetup& setup)
      : biases_(setup.parameter("biases", {setup.heads, bucket_count}, Fill::normal(0.02))) {}

  void score(const AttentionInput& in, Score& score) const override {
    const Tensor buckets = in.distances(bucket_of, DType::i32);
    score.biases.push_back(Toeplitz{transpose(embedding(transpose(biases_, 0, 1), buckets), 0, 1)});
  }

 private:
  Tensor biases_;  // b [H, 32]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(t5, NoOptions, T5, "a learned bias for each of 32 ranges of distance",
               "l_ij = s_ij + b_h[bucket(i-j)];  b [H, 32]\n"
               "bucket(n) = n for n < 16, else min(31, 16 + floor(16 ln(n/16) / ln(128/16)))",
               "T5: Raffel et al. 2020, arXiv 1910.10683", .reads_heads = false);

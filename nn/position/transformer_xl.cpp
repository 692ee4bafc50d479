// Relative positions of Transformer-XL (arXiv 1901.02860, section 3.3):
//   l_ij = ((q_i + u).k_j + (q_i + v).(W_r R[i-j])) / sqrt(d),  u, v [H, d],  W_r [D, D], d rows for each head;
//   R[n] = [sin(n ω_m)], then [cos(n ω_m)], of width D together,  ω_m = 10000^(-2m/D), m from 0.
// u.k_j depends only on the key, so it is added as a bias; k is not rotated, even in a combination with a rotation.
#include <cmath>

#include "autograd/ops.hpp"
#include "nn/attention/attention.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

// R[n]; an odd D has one more sine.
double distance_sinusoid(std::int64_t n, std::int64_t column, std::int64_t width) {
  const std::int64_t sines = (width + 1) / 2, m = column < sines ? column : column - sines;
  const double angle =
      static_cast<double>(n) * std::pow(10000.0, -2 * static_cast<double>(m) / static_cast<double>(width));
  return column < sines ? std::sin(angle) : std::cos(angle);
}

class TransformerXl final : public Encoding {
 public:
  explicit TransformerXl(const EncodingSetup& setup) : heads_(setup.heads) {
    const Fill start = Fill::normal(0.02);
    const Shape per_head{setup.heads, setup.head_width};
    content_ = setup.parameter("content", per_head, start);
    position_ = setup.parameter("place", per_head, start);
    map_ = setup.parameter("distances", {setup.heads * setup.head_width, setup.width}, start);
  }

  void score(const AttentionInput& in, Score& score) const override {
    // One row for each of the heads that share a key head.
    const Tensor content = reshape(content_, {in.k.size(1), heads_ / in.k.size(1), content_.size(1)});
    const Tensor from_keys =
        reshape(matmul(content, transpose(in.k, -1, -2), in.scale), {in.k.size(0), heads_, in.k.size(2)});
    score.biases.push_back(RowColumn{{}, in.keep("content bias", cast(from_keys, DType::f64), 2)});
    const Tensor known = unsqueeze(in.distances(distance_sinusoid, in.x.size(2)), 0);  // R [1, keys, D]
    const Tensor by_distance = split_heads(linear(known, map_), heads_);               // W_r R [1, H, keys, d]
    score.biases.push_back(ToeplitzProduct{in.q + unsqueeze(position_, 1), by_distance});
  }

 private:
  std::int64_t heads_;
  Tensor content_, position_;  // u, v [H, d]
  Tensor map_;                 // W_r [H d, D]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(transformer_xl, NoOptions, TransformerXl,
               "query and key biases, and a projected sinusoid for each distance",
               "l_ij = ((q_i + u).k_j + (q_i + v).(W_r R[i-j])) / sqrt(d);  R[n] = sin, then cos of n 10000^(-2m/D)\n"
               "u, v [H, d];  W_r [D, D];  on a GPU needs B H T² numbers a layer",
               "Transformer-XL: Dai et al. 2019, arXiv 1901.02860");

// Functional interpolation for relative positions (FIRE, arXiv 2310.04418):
//   l_ij = s_ij + f_h(x_ij),  x_ij = ln(|c| (i-j) + 1) / (ln(|c| max(i, L) + 1) + 1e-6),  L = |512 m|;
//   f = W2 relu(w1 x + b1) + b2, of width 32;  c, m learned, from 0.1 and 1.
// For texts of at most L + 1 tokens it depends only on the distance and costs T numbers. For longer ones it is a
// score modification: f is linear between the kinks of its units, which all rows share, so that a pair reads one value
// and one slope at x. It is a bias of H T² numbers per layer in a combination with another score modification, during
// generation and in reference attention; backward recomputes the intermediates of biases. L is learned: training may
// make it shorter than any text. So a memory estimate counts the longer form, which is exact for a short L and an upper
// bound otherwise.
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

// The scalar of a head is |c|; of a row 1 / (ln(|c| max(i, L) + 1) + 1e-6).
struct Interpolated {
  static constexpr int rows = 1, heads = 1;
  static constexpr bool knots = true;
  static constexpr auto position(const auto& p) { return log(head<0>(p) * p.distance + 1) * row<0>(p); }
  static constexpr auto bias(const auto& p) { return p.entry; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(fire, Interpolated);

#ifndef TALLY_SCORE_MOD_ONLY

#include "autograd/ops.hpp"
#include "autograd/recompute.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

constexpr std::int64_t hidden_width = 32;
constexpr double start_length = 512, eps = 1e-6;

class Fire final : public Encoding {
 public:
  explicit Fire(const EncodingSetup& setup) {
    stretch_ = setup.parameter("c", {1}, Fill::constant(0.1));
    threshold_ = setup.parameter("m", {1}, Fill::constant(1));
    hidden_weight_ = setup.parameter("hidden.weight", {hidden_width, 1}, setup.start->linear_weight(1));
    hidden_bias_ = setup.parameter("hidden.bias", {hidden_width}, setup.start->linear_bias(1));
    output_weight_ =
        setup.parameter("output.weight", {setup.heads, hidden_width}, setup.start->linear_weight(hidden_width));
    output_bias_ = setup.parameter("output.bias", {setup.heads}, setup.start->linear_bias(hidden_width));
  }

  void score(const AttentionInput& in, Score& score) const override {
    const Tensor length = abs(threshold_ * start_length);
    if (reaches(length, in.keys() - 1)) {
      // One row stands for all of them.
      const Tensor bias = bias_of(indices(in, in.keys() - 1), unsqueeze(in.distances(), 0));
      score.biases.push_back(Toeplitz{transpose(select(bias, 0, 0), 0, 1)});
      return;
    }
    if (in.materialised || in.cache != nullptr || !is_compiled(score_mod_fire, in.q.device()) || score.score_mod) {
      score.biases.push_back(dense(in));
    } else {
      score.add_score_mod(interpolated(in, length));
    }
  }

 private:
  // i [tokens, 1]
  static Tensor indices(const AttentionInput& in, std::int64_t first) {
    return unsqueeze(slice(in.distances(), 0, first, in.keys()), 1);
  }

  AppliedScoreMod interpolated(const AttentionInput& in, const Tensor& length) const {
    const std::int64_t batch = in.q.size(0), heads = in.q.size(1), queries = in.q.size(2);
    const Tensor c = abs(stretch_);
    const Tensor inverse = reciprocal(log(c * maximum(length, indices(in, in.first)) + 1.0) + eps);
    const HiddenSegments segments = hidden_segments(select(hidden_weight_, 1, 0), hidden_bias_);
    const std::int64_t knots = segments.knots.size(0);
    const Tensor both = reshape(matmul(output_weight_, segments.units), {heads, knots, 2});
    const Tensor value = slice(both, 2, 0, 1) + reshape(output_bias_, {heads, 1, 1});
    const Tensor table = reshape(concat({value, slice(both, 2, 1, 2)}, 2), {heads, 1, 2 * knots});
    return {.mod = &score_mod_fire,
            .rows = broadcast_to(inverse, {batch, heads, queries, 1}),
            .heads = broadcast_to(c, {heads, 1}),
            .table = broadcast_to(table, {batch, heads, queries, 2 * knots}),
            .knots = segments.knots};
  }
  Dense dense(const AttentionInput& in) const {
    const Tensor rows = indices(in, in.first);
    const Tensor bias = bias_of(rows, relu(rows - unsqueeze(in.distances(), 0)));
    return {unsqueeze(transpose(transpose(bias, 1, 2), 0, 1), 0)};
  }
  // The bias for rows i [rows, 1] and i-j [1 or rows, keys] -> [rows, keys, H].
  Tensor bias_of(const Tensor& rows, const Tensor& distances) const {
    const std::vector<Tensor> parameters{stretch_,     threshold_,     hidden_weight_,
                                         hidden_bias_, output_weight_, output_bias_};
    const auto of_pairs = [rows, distances](const std::vector<Tensor>& own) {
      const Tensor c = abs(own[0]), length = abs(own[1] * start_length);  // L [1]
      const Tensor x = log(c * distances + 1.0) / (log(c * maximum(length, rows) + 1.0) + eps);
      return std::vector<Tensor>{linear(relu(linear(unsqueeze(x, 2), own[2], own[3])), own[4], own[5])};
    };
    return recomputed("fire", parameters, of_pairs)[0];
  }
  // Whether L is no shorter than this. Not so where memory is only counted (EncodingTraits::memory_is_learned).
  static bool reaches(const Tensor& length, std::int64_t last) {
    return length.device().type != DeviceType::meta && length.item() >= static_cast<double>(last);
  }

  Tensor stretch_, threshold_;          // c, m [1]
  Tensor hidden_weight_, hidden_bias_;  // w1 [32, 1], b1 [32]
  Tensor output_weight_, output_bias_;  // W2 [H, 32], b2 [H]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(
    fire, NoOptions, Fire, "a learned function of the distance, relative to the position",
    "l_ij = s_ij + f_h(ln(|c| (i-j) + 1) / (ln(|c| max(i, L) + 1) + 1e-6));  L = |512 m|\n"
    "f(x) = W2 relu(w1 x + b1) + b2, of width 32;  c, m learned, from 0.1 and 1\n"
    "combined with another running sum it needs H T² numbers a layer if T > L + 1; in backward (36 + H) T² and "
    "B H T² more for one layer at a time",
    "FIRE: Li et al. 2024, arXiv 2310.04418", .reads_heads = false, .after_scores = true, .reads_distances = true,
    .memory_is_learned = true);

#endif

// Functional interpolation for relative positions (FIRE, arXiv 2310.04418):
//   l_ij = s_ij + f_h( ln(|c| (i-j) + 1) / (ln(|c| max(i, L) + 1) + 1e-6) ),  L = |512 m|
//   f = W2 relu(w1 x + b1) + b2, of width 32;  c, m learned, from 0.1 and 1
// For texts of at most L + 1 tokens it depends on the distance alone and costs T numbers; for longer ones each layer
// keeps H T² numbers until backward, which computes the rest again, about (36 + H) T² for one layer at a time, most of
// them the hidden layer of f. L is learned: training may make it shorter than any text, so an estimate of memory counts
// this, which is exact where L is shorter and the most of it where it is not.
#include "autograd/ops.hpp"
#include "autograd/recompute.hpp"
#include "nn/encoding.hpp"

namespace tally {
namespace {

constexpr std::int64_t hidden_width = 32;
constexpr double start_length = 512, eps = 1e-6;

class Fire final : public Encoding {
 public:
  explicit Fire(const EncodingSetup& setup) {
    const auto make = [&](std::string_view name, const Shape& shape, const Fill& fill) {
      return setup.parameter(name, shape, fill, Scope::layer);
    };
    stretch_ = make("c", {1}, Fill::constant(0.1));
    threshold_ = make("m", {1}, Fill::constant(1));
    hidden_weight_ = make("hidden.weight", {hidden_width, 1}, setup.start->linear_weight(1));
    hidden_bias_ = make("hidden.bias", {hidden_width}, setup.start->linear_bias(1));
    output_weight_ = make("output.weight", {setup.heads, hidden_width}, setup.start->linear_weight(hidden_width));
    output_bias_ = make("output.bias", {setup.heads}, setup.start->linear_bias(hidden_width));
  }

  void score(const AttentionInput& in, Score& score) const override {
    const bool by_distance = reaches(abs(threshold_ * start_length), in.keys() - 1);
    const Tensor distances = unsqueeze(in.distances(), 0), all = transpose(distances, 0, 1);
    const std::vector<Tensor> own{stretch_, threshold_, hidden_weight_, hidden_bias_, output_weight_, output_bias_};
    // One row stands for all of them, or each query has its own.
    const Tensor rows = slice(all, 0, by_distance ? in.keys() - 1 : in.first, in.keys());  // i [rows, 1]
    if (by_distance) {
      score.biases.push_back(Toeplitz{transpose(select(bias_of(own, rows, distances), 0, 0), 0, 1)});
      return;
    }
    const auto of_pairs = [rows, distances](const std::vector<Tensor>& x) {
      return std::vector<Tensor>{bias_of(x, rows, relu(rows - distances))};
    };
    const Tensor bias = recomputed("fire", own, of_pairs)[0];
    score.biases.push_back(Dense{unsqueeze(transpose(transpose(bias, 1, 2), 0, 1), 0)});
  }

 private:
  // Of rows i [rows, 1] and i-j [1 or rows, keys] -> [rows, keys, H], by c, m, w1, b1, W2, b2.
  static Tensor bias_of(const std::vector<Tensor>& own, const Tensor& rows, const Tensor& distances) {
    const Tensor c = abs(own[0]), length = abs(own[1] * start_length);  // L [1]
    const Tensor x = log(c * distances + 1.0) / (log(c * maximum(length, rows) + 1.0) + eps);
    return linear(relu(linear(unsqueeze(x, 2), own[2], own[3])), own[4], own[5]);
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

TALLY_ENCODING(fire, NoOptions, Fire, "a learned function of the distance, relative to the position",
               "l_ij = s_ij + f_h(ln(|c| (i-j) + 1) / (ln(|c| max(i, L) + 1) + 1e-6));  L = |512 m|\n"
               "f(x) = W2 relu(w1 x + b1) + b2, of width 32;  c, m learned, from 0.1 and 1\n"
               "costs T numbers a layer where T <= L + 1, else H T²; in backward, for one layer at a time, "
               "(36 + H) T² and B H T² more",
               "FIRE: Li et al. 2024, arXiv 2310.04418", .memory_is_learned = true);

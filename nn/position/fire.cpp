// Functional interpolation for relative positions (FIRE, arXiv 2310.04418):
//   l_ij = s_ij + f_h( ln(|c| (i-j) + 1) / (ln(|c| max(i, L) + 1) + 1e-6) ),  L = |512 m|
//   f = W2 relu(w1 x + b1) + b2, of width 32;  c, m learned, from 0.1 and 1
// For texts of at most L + 1 tokens it depends on the distance alone and costs T numbers; for longer ones each layer
// keeps about (36 + H) T² numbers until backward, most of them the hidden layer of f. L is learned, so this is what an
// estimate of memory counts.
#include "autograd/ops.hpp"
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
    const Tensor length = abs(threshold_ * start_length);  // L [1]
    const bool by_distance = reaches(length, in.keys() - 1);
    const Tensor distances = unsqueeze(in.distances(), 0), all = transpose(distances, 0, 1);
    // One row stands for all of them, or each query has its own.
    const Tensor rows = slice(all, 0, by_distance ? in.keys() - 1 : in.first, in.keys());  // i [rows, 1]
    const Tensor c = abs(stretch_);
    const Tensor numerator = log(c * (by_distance ? distances : relu(rows - distances)) + 1.0);  // i-j [rows, keys]
    const Tensor denominator = log(c * maximum(length, rows) + 1.0) + eps;
    const Tensor bias = mlp(numerator / denominator);  // [rows, keys, H]
    if (by_distance) {
      score.biases.push_back(Toeplitz{transpose(select(bias, 0, 0), 0, 1)});
    } else {
      score.biases.push_back(Dense{unsqueeze(transpose(transpose(bias, 1, 2), 0, 1), 0)});
    }
  }

 private:
  // Whether L is no shorter than this. Not so where memory is only counted: training may make it shorter.
  static bool reaches(const Tensor& length, std::int64_t last) {
    return length.device().type != DeviceType::meta && length.item() >= static_cast<double>(last);
  }
  // f of every element: x [.., ..] -> [.., .., H]
  Tensor mlp(const Tensor& x) const {
    return linear(relu(linear(unsqueeze(x, 2), hidden_weight_, hidden_bias_)), output_weight_, output_bias_);
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
               "costs T numbers a layer where T <= L + 1, else about (36 + H) T² and B H T² more in backward",
               "FIRE: Li et al. 2024, arXiv 2310.04418");

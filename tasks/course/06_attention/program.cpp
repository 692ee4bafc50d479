// Chapter 6: attention, written out. One head learns to look at the token before.
#include <cmath>
#include <iostream>
#include <random>
#include <tally/tally.hpp>
#include <vector>

using tally::DType, tally::Tensor;

constexpr std::int64_t batch = 32, length = 12, vocabulary = 8, width = 16;

// Attention of queries q to keys k with values v, each [B, T, D]. Returns [B, T, D], and the weights [B, T, T].
std::pair<Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(2)));
  Tensor scores = multiply(matmul(q, transpose(k, 1, 2)), scale);  // [B, T, T]: query i and key j
  const Tensor places = Tensor::arange(q.size(1), q.dtype());
  const Tensor is_past = less_equal(unsqueeze(places, 0), unsqueeze(places, 1));  // j <= i
  scores = where(is_past, scores, Tensor::full({1}, -1e30, q.dtype()));
  const Tensor weights = softmax(scores);
  return {matmul(weights, v), weights};
}

class OneHead : public tally::Module {
 public:
  explicit OneHead(const tally::Initializer& start)
      : tokens_(start.at("tokens"), vocabulary, width),
        places_(start.at("places"), length, width),
        query_(start.at("query"), width, width),
        key_(start.at("key"), width, width),
        value_(start.at("value"), width, width),
        logits_(start.at("logits"), width, vocabulary) {
    add_child("tokens", tokens_);
    add_child("places", places_);
    add_child("query", query_);
    add_child("key", key_);
    add_child("value", value_);
    add_child("logits", logits_);
  }
  // tokens i32 [B, T] -> logits [B, T, V], and the weights of attention
  std::pair<Tensor, Tensor> forward(const Tensor& tokens) const {
    const Tensor x = tokens_.forward(tokens) + places_.forward(Tensor::arange(length, DType::i32));
    const auto [y, weights] = attention(query_.forward(x), key_.forward(x), value_.forward(x));
    return {logits_.forward(y), weights};
  }

 private:
  tally::Embedding tokens_, places_;
  tally::Linear query_, key_, value_, logits_;
};

int main() {
  OneHead model(tally::Initializer(/*seed=*/1, tally::StartValues::fan_in, DType::f64));
  tally::OptimizerOptions options;
  options.lr = 1e-2, options.schedule = "cosine";
  constexpr int steps = 300;
  const auto optimizer = tally::Optimizer::make(options, model, steps);
  std::mt19937 random(1);
  Tensor weights;
  for (int n = 1; n <= steps; ++n) {
    std::vector<std::int32_t> tokens, before;
    for (std::int64_t element = 0; element < batch * length; ++element) {
      before.push_back(element % length == 0 ? 0 : tokens.back());  // the answer to the first token is 0
      tokens.push_back(static_cast<std::int32_t>(random() % vocabulary));
    }
    const auto [logits, attended] = model.forward(Tensor::from(tokens, {batch, length}));
    const Tensor loss = cross_entropy(logits, Tensor::from(before, {batch, length}));
    loss.backward();
    optimizer->step();
    weights = attended;
    if (n == 1 || n % 100 == 0) std::cout << "step " << n << ": loss " << std::round(loss.item() * 100) / 100 << '\n';
  }
  // The weights of one sequence: a row for each query, darker for larger weights.
  const std::vector<double> first = weights.detached_select(0, 0).to_vector<double>();
  for (std::int64_t i = 0; i < length; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      const double weight = first[static_cast<std::size_t>(i * length + j)];
      std::cout << ' ' << (weight > 0.5 ? '#' : weight > 0.1 ? '+' : '.');
    }
    std::cout << '\n';
  }
  return 0;
}

// One score shape, made from sizes and named tensors.
#pragma once

#include <functional>
#include <string>

#include "autograd/ops.hpp"
#include "autograd/score.hpp"

namespace tally::testing {

struct Sizes {
  std::int64_t batch, heads, length, width, value_width;
  std::int64_t shared_by = 1;       // heads of queries that have the same keys
  std::int64_t keys_per_query = 1;  // the queries are the last tokens of `length`
  std::int64_t queries() const { return length / keys_per_query; }
  std::int64_t key_heads() const { return heads / shared_by; }
};

// The parts of a score and how its tensors are made; every tensor comes from `leaf`, so that gradients can be compared.
using Leaf = std::function<Tensor(const std::string& name, const Shape& shape, double deviation)>;
// The parts of one case. Each adds to the score, or makes an operand of it. Tests know the names of the leaves.
struct ShapeParts {
  const Sizes& s;
  const Leaf& leaf;
  Score& score;

  Tensor by_query(const std::string& name, std::int64_t width, double deviation = 1) const {
    return leaf(name, {s.batch, s.heads, s.queries(), width}, deviation);
  }
  Tensor by_key(const std::string& name, std::int64_t width) const {
    return leaf(name, {s.batch, s.key_heads(), s.length, width}, 1);
  }
  Tensor by_head(const std::string& name, std::int64_t width, double deviation) const {
    return leaf(name, {s.heads, width}, deviation);
  }
  // A number of each query, or of each key.
  Tensor of_queries(const std::string& name) const { return leaf(name, {s.batch, s.heads, s.queries()}, 1); }
  Tensor of_keys(const std::string& name) const { return leaf(name, {s.batch, s.heads, s.length}, 1); }

  Gates gates() const { return {by_query("gate_query", s.width), by_key("gate_key", s.width)}; }
  Tensor table(std::int64_t last) const { return by_query("z", last + 1); }
  void slope(const Gates& gates = {}) const {
    score.add_score_mod(contextual_slope(leaf("slope", {s.heads}, 0.1), gates));
  }
  void segments(const Gates& gates = {}) const {
    const HiddenSegments hidden = hidden_segments(leaf("w", {5}, 0.3), leaf("b", {5}, 1));
    score.add_score_mod(contextual_segments(matmul(by_query("u", 5, 0.3), hidden.units), hidden.knots, gates));
  }
  void stick(bool attend_current = false) const {
    score.add_score_mod(stick_breaking(attend_current));
    score.set_softmax_rule({SoftmaxRule::Kind::exp});
  }

  void toeplitz(std::int64_t beyond = 0) const {
    score.biases.push_back(Toeplitz{by_head("toeplitz", s.length + beyond, 1)});
  }
  void row() const { score.biases.push_back(RowColumn{of_queries("row"), {}}); }
  void column() const { score.biases.push_back(RowColumn{{}, of_keys("column")}); }
  void by_row(std::int64_t width = 7, bool cap = false) const {
    score.biases.push_back(RowToeplitz{by_query("by_row", width), cap});
  }
  void dense(std::int64_t batch, std::int64_t heads) const {
    score.biases.push_back(Dense{leaf("dense", {batch, heads, s.queries(), s.length}, 1)});
  }
  void product() const { score.biases.push_back(Product{by_query("r", 3, 0.5), by_key("g", 3)}); }
  // number: of one of several
  void product_by_distance(std::int64_t batch, std::int64_t heads, std::int64_t distances, bool cap = false,
                           const std::string& number = "") const {
    score.biases.push_back(ToeplitzProduct{by_query("by_query" + number, 5, 0.5),
                                           leaf("by_distance" + number, {batch, heads, distances, 5}, 1), cap});
  }

  Tensor rest() const { return by_query("rest", s.value_width); }
  void sink() const { score.set_softmax_rule({SoftmaxRule::Kind::softmax, leaf("sink", {s.heads}, 2)}); }
};

struct ShapeCase {
  std::string name;
  std::function<void(const ShapeParts& x)> make;
  // Whether rounding decides between two derivatives somewhere: at positions next to an integer, where the table bends,
  // or where a hidden unit does.
  bool kinks = false;
  AttentionMask mask = {};
  bool all_tokens = false;  // the number of queries equals the number of keys
};

}  // namespace tally::testing

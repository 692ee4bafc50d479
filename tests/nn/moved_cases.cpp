// Score shapes with queries that move, alone and beside the others.
#include <algorithm>
#include <cmath>

#include "tests/nn/score_cases.hpp"
#include "tests/nn/score_mods.hpp"

namespace tally::testing {
namespace {

// Of which kind; keys of each head by itself where heads share those of the operands.
void move_queries(const Sizes& s, const Leaf& leaf, Score& score, bool channels, bool by_query_head = false) {
  const std::int64_t block = std::min(s.length, moved_block), heads = by_query_head ? s.heads : s.key_heads();
  const Shape of_keys{s.batch, heads, s.length, s.width};
  const auto make = [&](const std::string& name, const Shape& shape, double deviation) {
    return leaf(name, shape, deviation, DType::f64);
  };
  MovedProduct moved;
  moved.queries = make("moved_queries", {s.batch, s.heads, s.length, s.width}, 1.5);
  moved.keys = make("moved_keys", of_keys, 1.5);
  moved.own = make("own", {s.batch, s.heads, s.length, block}, 1);
  if (channels) {
    moved.factor = make("channel_factor", {s.batch, heads, (s.length + block - 1) / block, s.width}, 1);
  } else {
    // What a block changes stays of the size of the query.
    const double small = 0.7 / std::sqrt(8 * std::sqrt(static_cast<double>(s.width)));
    moved.read = make("read", of_keys, small);
    moved.taken = make("taken", of_keys, small);
  }
  score.moved = moved;
}

}  // namespace

std::vector<ShapeCase> moved_cases() {
  const auto table = [](const Sizes& s, const Leaf& leaf, Score& score) {
    score.add_score_mod(contextual_table(leaf("z", {s.batch, s.heads, s.length, 10}, 1, DType::f64)));
  };
  const auto slope = [](const Sizes& s, const Leaf& leaf, Score& score) {
    score.add_score_mod(contextual_slope(leaf("slope", {s.heads}, 0.1, DType::f64)));
  };
  const auto product = [](const Sizes& s, const Leaf& leaf, Score& score) {
    score.biases.push_back(Product{leaf("r", {s.batch, s.heads, s.length, 3}, 0.5, DType::f64),
                                   leaf("g", {s.batch, s.key_heads(), s.length, 3}, 1, DType::f64)});
  };
  const auto moved = [](bool channels, bool by_query_head, auto... more) {
    return [=](const Sizes& s, const Leaf& leaf, Score& score) {
      move_queries(s, leaf, score, channels, by_query_head);
      (more(s, leaf, score), ...);
    };
  };
  const auto nothing = [](const Sizes&, const Leaf&, Score&) {};
  const auto stick = [](const Sizes& s, const Leaf& leaf, Score& score) {
    break_stick(score, false);
    score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
  };
  // Falls so fast that far tiles are left out, also such as lie between others.
  const auto steep = [](const Sizes& s, const Leaf& leaf, Score& score) {
    const Tensor slopes = abs(leaf("slopes", {s.heads, 1}, 1, DType::f64)) + 0.5;
    const Tensor distance = cumsum(Tensor::full({1, s.length}, 1.0, DType::f64, default_device()));
    score.biases.push_back(Toeplitz{negate(slopes * distance.to(slopes.dtype()))});
  };
  const auto comb = [](const Sizes& s, const Leaf& leaf, Score& score) {
    const Tensor wave = sin(cumsum(Tensor::full({1, s.length}, 0.02, DType::f64, default_device())));
    const Tensor height = leaf("height", {s.heads, 1}, 1, DType::f64) + 300.0;
    score.biases.push_back(Toeplitz{height * wave.to(height.dtype())});
  };
  const auto sums = [](const Sizes& s, const Leaf& leaf, Score& score) {
    const Tensor falling = cumsum(abs(leaf("falling", {s.batch, s.heads, s.length}, 1, DType::f64))) * -0.2;
    score.biases.push_back(RowColumn{falling, negate(falling)});
    score.set_softmax_rule({SoftmaxRule::Kind::softmax, leaf("sink", {s.heads}, 2, DType::f64)});
  };
  const auto factor = [](const Sizes&, const Leaf&, Score& score) { score.factor = 0.7; };
  const auto every_bias = [](const Sizes& s, const Leaf& leaf, Score& score) {
    score.add_score_mod(
        contextual_table(leaf("z", {s.batch, s.heads, s.length, 10}, 1, DType::f64), gates_of(s, leaf)));
    score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length + 2}, 1, DType::f64)});
    score.biases.push_back(RowColumn{leaf("row", {s.batch, s.heads, s.length}, 1, DType::f64),
                                     leaf("column", {s.batch, s.heads, s.length}, 1, DType::f64)});
    score.biases.push_back(RowToeplitz{leaf("by_row", {s.batch, s.heads, s.length, 7}, 1, DType::f64), true});
    score.biases.push_back(Dense{leaf("dense", {s.batch, 1, s.length, s.length}, 1, DType::f64)});
    score.set_softmax_rule(
        {SoftmaxRule::Kind::sigmoid, {}, 4, leaf("rest", {s.batch, s.heads, s.length, s.value_width}, 1, DType::f64)});
  };
  const auto binned = [](const Sizes& s, const Leaf& leaf, Score& score) {
    AppliedScoreMod pair{&binned_score_mod(), {}, abs(leaf("heads", {s.heads, 1}, 1, DType::f64))};
    pair.table = leaf("z", {s.batch, s.heads, s.length, 10}, 1, DType::f64);
    score.add_score_mod(pair);
    score.biases.push_back(Toeplitz{leaf("toeplitz", {s.heads, s.length}, 1, DType::f64)});
    score.row_factor = leaf("row_factor", {s.batch, s.heads, s.length}, 0.5, DType::f64);
  };
  return {
      {"moved", moved(false, false, nothing), false, {}, true},
      {"moved_channels", moved(true, false, nothing), false, {}, true},
      {"moved_by_query_head", moved(false, true, nothing), false, {}, true},
      {"moved_in_a_window", moved(false, false, nothing), false, {.window = 40, .first = 3}, true},
      {"moved_channels_in_chunks", moved(true, true, nothing), false, {.window = 90, .chunk = 100}, true},
      {"moved_and_table", moved(false, false, table, factor), true, {}, true},
      {"moved_and_slope_and_product", moved(true, true, slope, product, factor), false, {}, true},
      {"moved_and_product", moved(false, false, product), false, {.window = 150}, true},
      {"moved_and_stick", moved(false, false, stick), false, {}, true},
      {"moved_and_sums_and_sink", moved(false, false, sums), false, {}, true},
      {"moved_and_steep", moved(false, false, steep), false, {}, true},
      {"moved_and_comb", moved(false, false, comb), false, {}, true},
      {"moved_channels_and_comb", moved(true, false, comb), false, {.window = 280, .first = 1}, true},
      {"moved_and_every_bias",
       moved(false, false, every_bias, product, factor),
       true,
       {.window = 80, .chunk = 90},
       true},
      {"moved_and_row_factor", moved(false, false, binned, product), false, {.window = 100}, true},
  };
}

}  // namespace tally::testing

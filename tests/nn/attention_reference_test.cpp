// The fused kernels against the reference in scalar loops: outputs and every gradient in f64, for each score
// modification of the library, kind of bias, softmax rule, mask and sharing of keys. Any two of these meet in some
// case.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/score.hpp"
#include "tests/devices.hpp"
#include "tests/error_of.hpp"
#include "tests/nn/encoding_cases.hpp"
#include "tests/nn/reference_kernels.hpp"
#include "tests/nn/score_mods.hpp"
#include "tests/nn/shape_case.hpp"

namespace tally {
namespace attention_reference_test {

using testing::normal_tensor;
using testing::ShapeParts;

class AttentionReference : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(AttentionReference);

struct Choice {
  std::string name;
  std::function<void(const ShapeParts& x)> join;
};

// The score modification of an encoding, which only the encoding's file knows; on cuda-host, where `fire` has no other
// form.
const ScoreMod* score_mod_of(const std::string& encoding) {
  const Device before = default_device();
  set_default_device(testing::on_cuda_host);
  const testing::AttentionSizes sizes;
  const Shape shape{sizes.batch, sizes.heads, sizes.length, sizes.head_width};
  const Tensor x = normal_tensor("x", {sizes.batch, sizes.length, sizes.width()}), q = normal_tensor("q", shape);
  const auto small = [](std::string_view name, const Shape& of, const Fill&) { return normal_tensor(name, of, 1e-3); };
  Score score;
  testing::make_encoding(EncodingChoice::parse(encoding), sizes, small)->score(AttentionInput{x, q, q, q, 1}, score);
  set_default_device(before);
  return score.score_mod->mod;
}

const std::vector<Choice>& score_mods() {
  static const auto knots = [] { return Tensor::from(std::vector<double>{0, 0.3, 1.1, 2.5}, {4}, default_device()); };
  using X = ShapeParts;
  static const std::vector<Choice> choices{
      {"none", [](const X&) {}},
      {"table", [](const X& x) { x.score.add_score_mod(contextual_table(x.table(11))); }},
      {"table, own gates", [](const X& x) { x.score.add_score_mod(contextual_table(x.table(39), x.gates())); }},
      {"segments", [](const X& x) { x.segments(); }},
      {"slope, own gates", [](const X& x) { x.slope(x.gates()); }},
      {"stick", [](const X& x) { x.score.add_score_mod(stick_breaking(false)); }},
      {"stick with current", [](const X& x) { x.score.add_score_mod(stick_breaking(true)); }},
      {"tra", [mod = score_mod_of("tra")](
                  const X& x) { x.score.add_score_mod({.mod = mod, .rows = x.by_query("rows", 1, 0.2)}); }},
      {"fire",
       [mod = score_mod_of("fire")](const X& x) {
         x.score.add_score_mod({.mod = mod,
                                .rows = x.by_query("rows", 1),
                                .heads = abs(x.by_head("heads", 1, 1)),
                                .table = x.by_query("z", 8),
                                .knots = knots()});
       }},
      // Modifications of the tests: a sum without the key's own gate, a table at a separate position, logits that read
      // biases.
      {"reading",
       [](const X& x) {
         x.score.add_score_mod(
             {&testing::reading_score_mod(), x.by_query("rows", 2, 0.5), x.by_head("heads", 2, 0.5), x.gates()});
       }},
      {"graded",
       [](const X& x) {
         x.score.add_score_mod({.mod = &testing::graded_score_mod(),
                                .rows = abs(x.by_query("rows", 1, 0.2)),
                                .gates = x.gates(),
                                .table = x.table(11)});
       }},
      {"bounded", [](const X& x) {
         x.score.add_score_mod({&testing::bounded_score_mod(), {}, abs(x.by_head("heads", 1, 1)) + 1.0});
       }}};
  return choices;
}

const std::vector<Choice> biases{
    {"none", [](const ShapeParts&) {}},
    {"toeplitz", [](const ShapeParts& x) { x.toeplitz(3); }},
    {"row and column",
     [](const ShapeParts& x) {
       x.score.biases.push_back(RowColumn{x.of_queries("row") * 3.0, x.of_keys("column") * 3.0});
     }},
    {"by row", [](const ShapeParts& x) { x.by_row(); }},
    {"by row, capped", [](const ShapeParts& x) { x.by_row(7, true); }},
    {"dense and column", [](const ShapeParts& x) {
       x.dense(1, x.s.heads);
       x.column();
     }}};

using Kind = SoftmaxRule::Kind;
const std::vector<Choice> rules{{"softmax", [](const ShapeParts&) {}},
                                {"sink", [](const ShapeParts& x) { x.sink(); }},
                                {"sink and rest",
                                 [](const ShapeParts& x) {
                                   x.sink();
                                   x.score.softmax_rule.rest = x.rest();
                                 }},
                                {"sigmoid and rest",
                                 [](const ShapeParts& x) {
                                   x.score.set_softmax_rule({Kind::sigmoid, {}, 4, x.rest()});
                                 }},
                                {"softpick", [](const ShapeParts& x) { x.score.set_softmax_rule({Kind::softpick}); }},
                                {"exp and rest", [](const ShapeParts& x) {
                                   x.score.set_softmax_rule({Kind::exp, {}, 0, x.rest()});
                                 }}};

const std::vector<AttentionMask> masks{
    {}, {.window = 30}, {.chunk = 33}, {.window = 25, .first = 3}, {.chunk = 20, .first = 2}};
// Sequences, heads of queries, heads of keys; keys for each query.
const std::vector<std::array<std::int64_t, 3>> head_counts{{2, 1, 1}, {1, 2, 1}, {1, 4, 2}};
const std::vector<std::int64_t> keys_per_query{1, 2};

// An index into each of these lists, in this order.
using Case = std::array<std::size_t, 6>;

// The rule exp is for logits that are never above 0, and stick-breaking for no other rule.
bool is_valid(const Case& one) {
  return score_mods()[one[0]].name.starts_with("stick") == rules[one[2]].name.starts_with("exp");
}

// Few cases in which any two values of different lists meet that can: always the one with most new pairs is next.
std::vector<Case> all_pairs() {
  const Case sizes{score_mods().size(), biases.size(),      rules.size(),
                   masks.size(),        head_counts.size(), keys_per_query.size()};
  std::vector<Case> valid{{}};
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<Case> longer;
    for (Case one : valid) {
      for (one[axis] = 0; one[axis] < sizes[axis]; ++one[axis]) longer.push_back(one);
    }
    valid = std::move(longer);
  }
  std::erase_if(valid, [](const Case& one) { return !is_valid(one); });
  std::vector<bool> met(sizes.size() * sizes.size() * 256);
  // f(whether they met) for each pair of the case's values.
  const auto each_pair = [&](const Case& one, const auto& f) {
    for (std::size_t a = 0; a < one.size(); ++a) {
      for (std::size_t b = a + 1; b < one.size(); ++b) f(met[((a * one.size() + b) * 16 + one[a]) * 16 + one[b]]);
    }
  };
  const auto new_pairs = [&](const Case& one) {
    int count = 0;
    each_pair(one, [&](bool did_meet) { count += did_meet ? 0 : 1; });
    return count;
  };
  std::vector<Case> chosen;
  while (true) {
    const Case best = *std::ranges::max_element(valid, {}, new_pairs);
    if (new_pairs(best) == 0) return chosen;
    each_pair(best, [](auto did_meet) { did_meet = true; });
    chosen.push_back(best);
  }
}

struct Outcome {
  Tensor output;
  std::map<std::string, Tensor> gradients;
};

Outcome attend(const Case& one, std::int64_t keys) {
  const auto& [batch, heads, key_heads] = head_counts[one[4]];
  const testing::Sizes sizes{batch, heads, keys, 6, 5, heads / key_heads, keys_per_query[one[5]]};
  std::map<std::string, Tensor> leaves;
  const testing::Leaf leaf = [&](const std::string& name, const Shape& shape, double deviation) {
    Tensor tensor = normal_tensor(name, shape, deviation);
    set_requires_grad(tensor);
    return leaves[name] = tensor;
  };
  Score score;
  const ShapeParts x{sizes, leaf, score};
  const AttentionOperands in{x.by_query("q", 6), x.by_key("k", 6), x.by_key("v", 5), 0.5, masks[one[3]]};
  score_mods()[one[0]].join(x);
  biases[one[1]].join(x);
  rules[one[2]].join(x);
  Outcome outcome;
  outcome.output = tiled_attention(in, score);
  backward(outcome.output, normal_tensor("d_output", outcome.output.shape()));
  for (const auto& [name, tensor] : leaves) outcome.gradients[name] = gradient(tensor);
  return outcome;
}

Outcome attend_in_reference(const Case& one, std::int64_t keys) {
  const Device before = default_device();
  set_default_device({});
  Outcome outcome;
  {
    const testing::WithReferenceAttention instead;
    outcome = attend(one, keys);
  }
  set_default_device(before);
  return outcome;
}

void expect_near(const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.defined(), expected.defined());
  if (!found.defined()) return;
  const std::vector<double> x = found.to_vector<double>(), y = expected.to_vector<double>();
  ASSERT_EQ(x.size(), y.size());
  double largest = 1e-3, difference = 0;  // some gradients are 0 except for rounding
  for (std::size_t n = 0; n < x.size(); ++n) {
    ASSERT_TRUE(std::isfinite(x[n]) && std::isfinite(y[n]));
    largest = std::max(largest, std::abs(y[n]));
    difference = std::max(difference, std::abs(x[n] - y[n]));
  }
  EXPECT_LE(difference, 1e-11 * largest);
}

TEST_P(AttentionReference, EqualsTheFusedKernels) {
  if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "races are looked for elsewhere";
  // More than one tile of rows and of keys. Those of a GPU are smaller, and slower to execute on the CPU.
  const std::int64_t keys = GetParam() == testing::on_cuda_host ? 70 : 150;
  for (const Case& one : all_pairs()) {
    SCOPED_TRACE(formatted("{}; bias {}; {}; mask {}; heads {}; queries 1/{}", score_mods()[one[0]].name,
                           biases[one[1]].name, rules[one[2]].name, one[3], one[4], keys_per_query[one[5]]));
    const Outcome fused = attend(one, keys), reference = attend_in_reference(one, keys);
    expect_near(fused.output, reference.output);
    for (const auto& [name, expected] : reference.gradients) {
      SCOPED_TRACE(name);
      expect_near(fused.gradients.at(name), expected);
    }
  }
}

TEST(AttentionReferenceOnCpu, RefusesWhatItDoesNotKnow) {
  const Tensor rows = normal_tensor("rows", {1, 1, 4, 3});
  AttentionOperands in{rows, rows, rows, 1};
  const testing::WithReferenceAttention instead;
  EXPECT_EQ(testing::error_of([&] { tiled_attention(in, {}); }), "");
  in.dropout = 0.5;
  EXPECT_NE(testing::error_of([&] { tiled_attention(in, {}); }).find("no dropout"), std::string::npos);
}

}  // namespace attention_reference_test
}  // namespace tally

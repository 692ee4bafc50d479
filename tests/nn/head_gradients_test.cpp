// Gradients of q, k and v that layers made: written in bf16 where these are, and once where a table's or distances'
// queries are q itself.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/node.hpp"
#include "autograd/ops.hpp"
#include "autograd/score.hpp"
#include "core/backend.hpp"
#include "nn/attention.hpp"
#include "tests/nn/score_cases.hpp"

namespace tally {
namespace {

using testing::normal_tensor;

class HeadGradients : public testing::OnDevice {
 protected:
  void TearDown() override {
    set_product_precision(ProductPrecision::f32);
    OnDevice::TearDown();
  }
};
TALLY_ON_EVERY_DEVICE(HeadGradients);

struct Sizes {
  std::int64_t batch, heads, key_heads, queries, keys, width;
  std::int64_t window = 0;
};
enum class Reads { none, table, distances };
enum class Query { q, copy };  // of what is read: q itself, or other tensors with the same elements

// By name the gradients of x and of the weights; q, k and v as products read them, or in f32.
std::map<std::string, std::vector<double>> gradients(const Sizes& of, Reads reads, Query query, ReadBy readers,
                                                     DType dtype = DType::f32) {
  constexpr std::int64_t inputs = 24;
  std::map<std::string, Tensor> leaves;
  const auto leaf = [&](const std::string& name, const Shape& shape) {
    Tensor x = normal_tensor(name, shape).to(dtype);
    set_requires_grad(x);
    leaves[name] = x;
    return x;
  };
  const Tensor earlier = leaf("earlier", {of.batch, of.keys - of.queries, inputs});
  const Tensor last = leaf("last", {of.batch, of.queries, inputs}), all = concat({earlier, last}, 1);
  const auto heads = [&](const std::string& name, const Tensor& x, std::int64_t count) {
    const Tensor weight = leaf(name, {count * of.width, inputs}) * 0.2;
    return split_heads(linear(x, weight, {}, {}, readers), count);
  };
  const Tensor q = heads("q", last, of.heads);
  AttentionOperands operands{q, heads("k", all, of.key_heads), heads("v", all, of.key_heads), 0.3};
  operands.visible.window = of.window;
  const Tensor read = query == Query::q ? q : add(q, Tensor::zeros({1}, dtype, q.device()));
  Score score;
  if (reads == Reads::table) score.set_scan(contextual_table({read, leaf("e", {1, 1, 9, of.width}), 0.7}));
  if (reads == Reads::distances)
    score.biases.emplace_back(ToeplitzProduct{read, leaf("e", {1, 1, 33, of.width}), true});
  const Tensor o = tiled_attention(operands, score);
  backward(o, normal_tensor("d_o", o.shape()).to(dtype));
  std::map<std::string, std::vector<double>> found;
  for (const auto& [name, x] : leaves) found[name] = gradient(x).to(DType::f64).to_vector<double>();
  return found;
}

// Products round what is given in f32 to the same numbers: no bit differs. Sums by key are those of one part of a head
// and of several, which there may not be memory for at once.
TEST_P(HeadGradients, AreWrittenAsLayersReadThem) {
  set_product_precision(ProductPrecision::bf16);
  std::vector<Sizes> sizes{{4, 4, 4, 70, 70, 20}, {1, 1, 1, 70, 70, 16}, {1, 4, 2, 65, 129, 20}};
  if (is_cpu(default_device()) && !testing::only_small_kernels(default_device())) {
    sizes.insert(sizes.end(), {{1, 1, 1, 600, 600, 16, 40}, {1, 2, 1, 600, 600, 16}});
    sizes.push_back({2, 9, 3, 3, 1024, 1024});  // 18 parts, three of each head of keys, of which 16 fit
  }
  for (const Sizes& one : sizes) {
    for (const Reads reads : {Reads::none, Reads::table, Reads::distances}) {
      if (one.width > 64 && reads != Reads::none) continue;
      SCOPED_TRACE(concat(one.queries, " queries of width ", one.width, ", reads ", static_cast<int>(reads)));
      const auto wide = gradients(one, reads, Query::q, ReadBy::anyone),
                 rounded = gradients(one, reads, Query::q, ReadBy::products);
      for (const auto& [name, expected] : wide) EXPECT_EQ(rounded.at(name), expected) << name;
    }
  }
}

TEST_P(HeadGradients, OfQueriesThatAreReadTwiceAreTheSum) {
  for (const Sizes& one : {Sizes{2, 2, 2, 70, 70, 20}, Sizes{1, 4, 2, 65, 129, 20}}) {
    for (const Reads reads : {Reads::table, Reads::distances}) {
      const auto once = gradients(one, reads, Query::q, ReadBy::anyone, DType::f64),
                 twice = gradients(one, reads, Query::copy, ReadBy::anyone, DType::f64);
      for (const auto& [name, expected] : twice) {
        double largest = 0, difference = 0;
        for (std::size_t n = 0; n < expected.size(); ++n) {
          largest = std::max(largest, std::abs(expected[n]));
          difference = std::max(difference, std::abs(once.at(name)[n] - expected[n]));
        }
        EXPECT_LE(difference, 1e-13 * largest) << name;
        EXPECT_TRUE(largest > 0 || expected.empty()) << name;
      }
    }
  }
}

}  // namespace
}  // namespace tally

// Gradients of q, k and v that layers made: written in bf16 where these are, and once where the queries of distances
// are q itself.
#include <gtest/gtest.h>

#include "core/cpu/parallel.hpp"
#include "tests/nn/score_cases.hpp"

namespace tally::head_gradients_test {

using testing::normal_tensor;

class HeadGradients : public testing::OnDevice {
 protected:
  void TearDown() override {
    set_matmul_precision(MatmulPrecision::f32);
    set_thread_count(threads_);
    OnDevice::TearDown();
  }

 private:
  int threads_ = thread_count();
};
TALLY_ON_EVERY_DEVICE(HeadGradients);

struct Sizes {
  std::int64_t batch, heads, key_heads, queries, keys, width;
  std::int64_t window = 0;
};
enum class Reads { none, distances };
enum class Query { q, copy };  // the operand: q itself, or other tensors with the same elements

// Whether q's gradient has two terms. Only the CPU's kernels compute products by distance.
bool is_summed(Reads reads, Query query) {
  return reads == Reads::distances && (query == Query::copy || !is_cpu(default_device()));
}

// The gradients of x and of the weights, by name; q, k and v in the precision that matmuls read, or in f32.
std::map<std::string, std::vector<double>> gradients(const Sizes& of, Reads reads, Query query,
                                                     OutputPrecision precision, DType dtype = DType::f32,
                                                     double scale = 0.3) {
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
  const bool rounds = precision == OutputPrecision::matmul_input;
  const auto heads = [&](const std::string& name, const Tensor& x, std::int64_t count) {
    const Tensor weight = leaf(name, {count * of.width, inputs}) * 0.2;
    const Tensor y = linear(x, weight, {}, {}, precision);
    EXPECT_EQ(y.dtype(), rounds ? DType::bf16 : dtype);
    // An operation of the graph checks the type of the gradients. A sum of two is f32.
    const bool is_sum = name == "q" && is_summed(reads, query);
    Tensor seen = y.detached_reshape(y.shape());
    record("seen", seen, {y}, [expected = rounds && !is_sum ? DType::bf16 : dtype](const Tensor& d_y, Gradients& d) {
      EXPECT_EQ(d_y.dtype(), expected);
      d.set(0, d_y);
    });
    return split_heads(seen, count);
  };
  const Tensor q = heads("q", last, of.heads);
  AttentionOperands operands{q, heads("k", all, of.key_heads), heads("v", all, of.key_heads), scale};
  operands.mask.window = of.window;
  const Tensor read = query == Query::q ? q : add(q, Tensor::zeros({1}, dtype, q.device()));
  Score score;
  if (reads == Reads::distances)
    score.biases.emplace_back(ToeplitzProduct{read, leaf("e", {1, 1, 33, of.width}), true});
  const Tensor o = tiled_attention(operands, score);
  backward(o, normal_tensor("d_o", o.shape()).to(dtype));
  std::map<std::string, std::vector<double>> found;
  for (const auto& [name, x] : leaves) found[name] = gradient(x).to(DType::f64).to_vector<double>();
  return found;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance) {
  double largest = 0, difference = 0;
  for (std::size_t n = 0; n < expected.size(); ++n) {
    largest = std::max(largest, std::abs(expected[n]));
    difference = std::max(difference, std::abs(found[n] - expected[n]));
  }
  EXPECT_LE(difference, tolerance * largest);
}

// Matmuls round operands given in f32 to the same numbers, so no bit differs. The exception is a gradient of q that is
// the sum of a rounded and an unrounded term; no gradient of k or v depends on it. The sums by key come from one part
// of a head, or from several if memory for the whole head is missing.
TEST_P(HeadGradients, AreWrittenAsLayersReadThem) {
  set_matmul_precision(MatmulPrecision::bf16);
  set_thread_count(2);  // there is memory for a part of each thread
  std::vector<Sizes> sizes{{4, 4, 4, 70, 70, 21}, {1, 1, 1, 70, 70, 16}, {1, 4, 2, 65, 129, 20}};
  if (is_cpu(default_device()) && !testing::only_small_kernels(default_device())) {
    sizes.insert(sizes.end(), {{1, 1, 1, 600, 600, 16, 40}, {1, 2, 1, 600, 600, 16}});
    sizes.push_back({2, 9, 3, 3, 1024, 1024});  // 18 parts, three for each key head; 16 fit
  }
  for (const Sizes& one : sizes) {
    for (const Reads reads : {Reads::none, Reads::distances}) {
      if (one.width > 64 && reads != Reads::none) continue;
      SCOPED_TRACE(formatted("{} queries of width {}, reads {}", one.queries, one.width, static_cast<int>(reads)));
      const auto wide = gradients(one, reads, Query::q, OutputPrecision::full),
                 rounded = gradients(one, reads, Query::q, OutputPrecision::matmul_input);
      for (const auto& [name, expected] : wide) {
        SCOPED_TRACE(name);
        if (is_summed(reads, Query::q) && name != "k" && name != "v") {
          expect_near(rounded.at(name), expected, 0x1p-7);
        } else {
          EXPECT_EQ(rounded.at(name), expected);
        }
      }
    }
  }
}

// In f64, also with a scale of 0, which leaves only the second operand's gradient, and with bf16 matmuls, which round
// both sums.
TEST_P(HeadGradients, OfQueriesThatAreReadTwiceAreTheSum) {
  for (const Sizes& one : {Sizes{2, 2, 2, 70, 70, 20}, Sizes{1, 4, 2, 65, 129, 20}}) {
    for (const auto& [dtype, scale] : {std::pair{DType::f64, 0.3}, {DType::f64, 0.0}, {DType::f32, 0.25}}) {
      SCOPED_TRACE(formatted("{}, scale {}", dtype, scale));
      set_matmul_precision(dtype == DType::f32 ? MatmulPrecision::bf16 : MatmulPrecision::f32);
      const auto once = gradients(one, Reads::distances, Query::q, OutputPrecision::full, dtype, scale),
                 twice = gradients(one, Reads::distances, Query::copy, OutputPrecision::full, dtype, scale);
      for (const auto& [name, expected] : twice) {
        SCOPED_TRACE(name);
        expect_near(once.at(name), expected, dtype == DType::f64 ? 1e-13 : 0x1p-8);
      }
      const auto of_q = twice.at("q");
      const bool any = std::any_of(of_q.begin(), of_q.end(), [](double d) { return d != 0; });
      EXPECT_TRUE(any || scale == 0);
    }
  }
}

// A norm's result that matmuls read, and a broadcast tensor.
TEST_P(HeadGradients, ReachWhatElseMadeThem) {
  const auto drawn = [](const std::string& name, const Shape& shape) {
    return normal_tensor(name, shape).to(DType::f32);
  };
  constexpr OutputPrecision precision = OutputPrecision::matmul_input;
  const auto of = [&](bool rounds) {
    set_matmul_precision(rounds ? MatmulPrecision::bf16 : MatmulPrecision::f32);
    std::vector<Tensor> leaves;
    for (const char* const name : {"x", "weight", "k"}) {
      leaves.push_back(drawn(name, name[0] == 'x' ? Shape{2, 40, 32} : name[0] == 'k' ? Shape{1, 40, 32} : Shape{32}));
      set_requires_grad(leaves.back());
    }
    const Tensor q = split_heads(rms_norm(leaves[0], leaves[1], 1e-6, precision), 2);
    const Tensor k = split_heads(linear(leaves[2], drawn("square", {32, 32}), {}, {}, precision), 2);
    const Tensor keys = broadcast_to(k, q.shape());
    const Tensor o = tiled_attention({q, keys, keys, 0.25}, {});
    backward(o, drawn("d_o", o.shape()));
    std::vector<double> found;
    for (const Tensor& leaf : leaves) {
      for (const double d : gradient(leaf).to(DType::f64).to_vector<double>()) found.push_back(d);
    }
    return found;
  };
  const std::vector<double> exact = of(false), rounded = of(true);
  double square = 0, error = 0;
  for (std::size_t n = 0; n < exact.size(); ++n) {
    square += exact[n] * exact[n];
    error += (rounded[n] - exact[n]) * (rounded[n] - exact[n]);
  }
  EXPECT_GT(error, 0);
  EXPECT_LE(std::sqrt(error / square), 0x1p-5);
}

}  // namespace tally::head_gradients_test

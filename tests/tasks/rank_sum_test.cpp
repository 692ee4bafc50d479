// Sums of gradients over ranks: the order in which buckets are sent, and equality with one process.
#include "tasks/training/tree_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "tests/thread_ranks.hpp"

namespace tally::rank_sum_test {

using testing::on_ranks;

const std::vector<Shape> shapes{{1}, {7, 3}, {130}, {}, {64}, {5, 2, 4}, {200}};
constexpr std::int64_t small_bucket = 100;

// Records each started reduction, with the number of tensors added before.
class Recorder final : public GradientReducer {
 public:
  void begin(const Tensor& bucket, std::int64_t terms) override {
    begun.emplace_back(bucket.offset(), bucket.numel());
    after.push_back(tensors);
    EXPECT_EQ(terms, 1);
  }
  void advance() override {}
  void finish() override {}
  void all_gather(const Tensor&, const std::vector<std::int64_t>&) override {}

  std::vector<std::pair<std::int64_t, std::int64_t>> begun;
  std::vector<std::size_t> after;
  std::size_t tensors = 0;
};

Tensor tensor_of(std::int64_t rank, std::size_t i) {
  std::mt19937 random(static_cast<unsigned>(1 + rank + 100 * static_cast<std::int64_t>(i)));
  std::vector<float> values(static_cast<std::size_t>(shapes[i].numel()));
  for (float& value : values) value = std::normal_distribution<float>()(random) * std::exp2(float(random() % 8));
  return Tensor::from(values, shapes[i]);
}

std::vector<std::size_t> random_order(unsigned seed) {
  std::vector<std::size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(seed);
  std::ranges::shuffle(order, random);
  return order;
}

TEST(RankSum, SendsBucketsInTheOrderOfTheListWhateverIsThereFirst) {
  std::vector<std::pair<std::int64_t, std::int64_t>> expected;
  for (unsigned seed = 0; seed < 50; ++seed) {
    Recorder exchange;
    RankSum sum(ProcessGroup::one(), exchange, shapes, DType::f32, Device{}, 1, small_bucket);
    for (const std::size_t i : random_order(seed)) {
      ++exchange.tensors;
      sum.set(i, tensor_of(0, i));
    }
    if (seed == 0) expected = exchange.begun;
    EXPECT_EQ(exchange.begun, expected);
    std::int64_t next = 0;
    for (const auto& [begin, count] : exchange.begun) {
      EXPECT_EQ(begin, std::exchange(next, begin + count));
      EXPECT_LE(count, small_bucket);
    }
    EXPECT_GE(next, 1 + 21 + 130 + 1 + 64 + 40 + 200);
    sum.take();
  }
}

// In list order: a bucket only waits for its own tensors.
TEST(RankSum, SendsABucketAsSoonAsItIsFull) {
  Recorder exchange;
  RankSum sum(ProcessGroup::one(), exchange, shapes, DType::f32, Device{}, 1, small_bucket);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    ++exchange.tensors;
    sum.set(i, tensor_of(0, i));
  }
  // Tensors begin at 0, 64, 128, 320, 384, 448, 512, and the last ends at 768.
  EXPECT_EQ(exchange.after, (std::vector<std::size_t>{2, 3, 3, 5, 6, 7, 7, 7}));
}

TEST(RankSum, IsTheSumOfOneProcess) {
  for (std::int64_t size = 2; size <= 5; ++size) {
    for (std::int64_t terms = size - 1; terms <= size; ++terms) {
      TreeSum alone;
      for (std::int64_t r = 0; r < terms; ++r) {
        std::vector<Tensor> term;
        for (std::size_t i = 0; i < shapes.size(); ++i)
          term.push_back(i == 2 && r % 2 == 0 ? Tensor() : tensor_of(r, i));
        term[4] = Tensor();
        alone.add(std::move(term));
      }
      const std::vector<Tensor> expected = alone.take();
      on_ranks(size, [&](const ProcessGroup& ranks) {
        const std::unique_ptr<GradientReducer> exchange = make_gradient_reducer(ranks, Device{});
        RankSum sum(ranks, *exchange, shapes, DType::f32, Device{}, terms, small_bucket);
        for (const std::size_t i : random_order(static_cast<unsigned>(ranks.rank()))) {
          const bool missing = i == 4 ? ranks.rank() < terms : i == 2 && ranks.rank() % 2 == 0;
          sum.set(i, missing ? Tensor() : tensor_of(ranks.rank(), i));
        }
        const std::vector<Tensor> found = sum.take();
        for (std::size_t i = 0; i < shapes.size(); ++i) {
          ASSERT_EQ(found[i].defined(), expected[i].defined()) << i << " of " << terms;
          if (!expected[i].defined()) continue;
          EXPECT_EQ(found[i].shape(), shapes[i]);
          EXPECT_EQ(found[i].to_vector<float>(), expected[i].to_vector<float>()) << i << " of " << terms;
        }
      });
    }
  }
}

// -0 stays -0 if another rank has no term.
TEST(RankSum, NothingAddsNothing) {
  on_ranks(2, [](const ProcessGroup& ranks) {
    const std::unique_ptr<GradientReducer> exchange = make_gradient_reducer(ranks, Device{});
    RankSum sum(ranks, *exchange, {{1}}, DType::f32, Device{}, 2);
    sum.set(0, ranks.first() ? Tensor() : Tensor::from(std::vector<float>{-0.0F}, {1}));
    EXPECT_TRUE(std::signbit(sum.take().front().item()));
  });
}

TEST(RankSum, AskedForTooEarlyOrTwiceIsABug) {
  Recorder exchange;
  RankSum sum(ProcessGroup::one(), exchange, {{1}, {1}}, DType::f32, Device{}, 1);
  sum.set(1, Tensor::zeros({1}));
  EXPECT_THROW(sum.take(), InternalError);
  EXPECT_THROW(sum.set(1, Tensor::zeros({1})), InternalError);
}

}  // namespace tally::rank_sum_test

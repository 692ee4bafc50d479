// Sums over ranks: their additions do not depend on the number of ranks or on the order in which messages arrive.
#include "core/distributed/gradient_reducer.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "tests/error_of.hpp"
#include "tests/thread_ranks.hpp"

namespace tally::gradient_reducer_test {

using testing::on_ranks;

// Element i of rank r: no two orders of addition give the same sum.
float value(std::int64_t rank, std::int64_t bucket, std::int64_t i) {
  std::mt19937 random(static_cast<unsigned>(1 + rank + 100 * bucket + 10000 * i));
  return std::normal_distribution<float>()(random) * std::exp2(static_cast<float>(random() % 8));
}

// By the definition: the left part has the largest power of two that leaves something for the right one.
float tree_sum(std::int64_t bucket, std::int64_t i, std::int64_t first, std::int64_t last) {
  if (last - first == 1) return value(first, bucket, i);
  std::int64_t left = 1;
  while (2 * left < last - first) left *= 2;
  return tree_sum(bucket, i, first, first + left) + tree_sum(bucket, i, first + left, last);
}

TEST(GradientReducer, AddsInTheTreeOfTheTerms) {
  for (std::int64_t size = 1; size <= 6; ++size) {
    for (std::int64_t terms = 1; terms <= size; ++terms) {
      on_ranks(size, [&](const ProcessGroup& ranks) {
        const std::unique_ptr<GradientReducer> exchange = make_gradient_reducer(ranks, Device{});
        std::vector<Tensor> buckets;
        for (const std::int64_t elements : {1, 3, 64, 1000}) {
          const std::int64_t b = std::ssize(buckets);
          std::vector<float> own;
          for (std::int64_t i = 0; i < elements; ++i) own.push_back(value(ranks.rank(), b, i));
          buckets.push_back(Tensor::from(own, {elements}));
          exchange->begin(buckets.back(), terms);
        }
        exchange->advance();
        exchange->finish();
        for (std::int64_t b = 0; b < std::ssize(buckets); ++b) {
          const std::vector<float> found = buckets[static_cast<std::size_t>(b)].to_vector<float>();
          for (std::int64_t i = 0; i < std::ssize(found); ++i) {
            const float expected = size == 1 ? value(0, b, i) : tree_sum(b, i, 0, terms);
            ASSERT_EQ(found[static_cast<std::size_t>(i)], expected) << size << " ranks, " << terms << " terms";
          }
        }
      });
    }
  }
}

// As the kernels of one process add: subnormal numbers are zero, and -0 + -0 is -0.
TEST(GradientReducer, AddsAsKernelsDo) {
  const float small = std::bit_cast<float>(std::uint32_t{0x00c00000});  // 1.5 2^-126
  const std::vector<std::vector<float>> terms{{small, -0.0F, 1.0F}, {-std::bit_cast<float>(0x00800000U), -0.0F, -1.0F}};
  const Tensor expected = Tensor::from(terms[0], {3});
  kernels(Device{}).binary(BinaryOp::add, expected.view(), expected.view(), Tensor::from(terms[1], {3}).view());
  on_ranks(2, [&](const ProcessGroup& ranks) {
    const std::unique_ptr<GradientReducer> exchange = make_gradient_reducer(ranks, Device{});
    const Tensor bucket = Tensor::from(terms[static_cast<std::size_t>(ranks.rank())], {3});
    exchange->begin(bucket, 2);
    exchange->finish();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(bucket.to_vector<float>()[i]),
                std::bit_cast<std::uint32_t>(expected.to_vector<float>()[i]));
    }
  });
  EXPECT_EQ(expected.to_vector<float>()[0], 0.0F);
}

TEST(GradientReducer, SharesParts) {
  on_ranks(3, [](const ProcessGroup& ranks) {
    const std::unique_ptr<GradientReducer> exchange = make_gradient_reducer(ranks, Device{});
    const std::vector<std::int64_t> begins{0, 2, 2, 5};
    const Tensor all = Tensor::full({5}, -1);
    for (std::int64_t i = begins[static_cast<std::size_t>(ranks.rank())];
         i < begins[static_cast<std::size_t>(ranks.rank()) + 1]; ++i) {
      all.span<float>()[static_cast<std::size_t>(i)] = static_cast<float>(10 * ranks.rank() + i);
    }
    exchange->all_gather(all, begins);
    EXPECT_EQ(all.to_vector<float>(), (std::vector<float>{0, 1, 22, 23, 24}));
  });
}

// Whose messages arrive when somebody waits for them, and not before.
class LateTransport final : public Transport {
 public:
  Request send(std::span<const std::byte>, std::int64_t, int) override { return this; }
  Request receive(std::span<std::byte>, std::int64_t, int) override { return this; }
  bool arrived(std::span<Request>) override { return false; }
  void wait(std::span<Request>) override {}
  [[noreturn]] void abort_all(int code) override { std::_Exit(code); }
};

// The counted memory is the memory of all buckets in transit at once.
TEST(GradientReducer, TakesTheMemoryThatIsCounted) {
  LateTransport late;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    for (std::int64_t terms = 1; terms <= 3; ++terms) {
      const ProcessGroup ranks(rank, 3, late);
      std::vector<std::size_t> taken;
      for (const Device device : {Device{}, meta_of(Device{})}) {
        const std::unique_ptr<GradientReducer> exchange =
            device == Device{} ? make_gradient_reducer(ranks, device) : make_counting_reducer(ranks);
        std::vector<Tensor> buckets;
        for (const std::int64_t elements : {2, 1000, 100'000})
          buckets.push_back(Tensor::zeros({elements}, DType::f64, device));
        const std::size_t before = memory_counters(device).live_bytes;
        for (const Tensor& bucket : buckets) exchange->begin(bucket, terms);
        taken.push_back(memory_counters(device).live_bytes - before);
        exchange->finish();
        EXPECT_EQ(memory_counters(device).live_bytes, before);
      }
      EXPECT_EQ(taken[0], taken[1]) << "rank " << rank << ", " << terms << " terms";
      EXPECT_EQ(taken[0] > 0, terms > 1 || rank > 0);
    }
  }
}

TEST(GradientReducer, PartsCoverAll) {
  for (const std::int64_t elements : {0, 1, 7, 1 << 20}) {
    for (const std::int64_t ranks : {1, 2, 3, 7}) {
      const std::vector<std::int64_t> begins = parts_of(elements, ranks);
      ASSERT_EQ(std::ssize(begins), ranks + 1);
      EXPECT_EQ(begins.front(), 0);
      EXPECT_EQ(begins.back(), elements);
      for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
        EXPECT_GE(begins[r + 1] - begins[r], elements / ranks);
        EXPECT_LE(begins[r + 1] - begins[r], elements / ranks + 1);
      }
    }
  }
}

TEST(ProcessGroup, AgreeOnValues) {
  on_ranks(4, [](const ProcessGroup& ranks) {
    EXPECT_FALSE(ranks.any(false));
    EXPECT_TRUE(ranks.any(ranks.rank() == 2));
    ranks.check_same(7, "the step");
    EXPECT_EQ(testing::error_of([&] { ranks.check_same(ranks.rank() == 3 ? 8 : 7, "the step"); }),
              "[mpi] the step is 8 for rank 3 and 7 for rank 0");
  });
}

}  // namespace tally::gradient_reducer_test

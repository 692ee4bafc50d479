// Tiled attention against the composed form of the same shapes: outputs and every gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu/parallel.hpp"
#include "core/precision.hpp"
#include "cuda/emulator/settings.hpp"
#include "tests/nn/score_cases.hpp"
#include "tests/nn/share.hpp"

namespace tally {
namespace tiled_test {

using testing::compute;
using testing::expect_equal;
using testing::expect_same_bits;
using testing::largest;
using testing::largest_difference;
using testing::Leaf;
using testing::normal_tensor;
using testing::Outcome;
using testing::several_tiles;
using testing::shape_cases;
using testing::ShapeCase;
using testing::ShapeParts;
using testing::Sizes;
using testing::times;

class Tiled : public testing::OnDevice {};
TALLY_ON_EVERY_DEVICE(Tiled);

std::vector<Sizes> all_sizes() {
  // One token; fewer rows than lanes; a tile and a few more rows; several tiles of keys, several shares of a head;
  // widths that are no whole vectors. Heads as wide as in models, wider than a tile of rows, and of width one.
  if (testing::only_small_kernels(default_device())) return {{1, 2, 35, 4, 4, 2}};
  std::vector<Sizes> all{{2, 1, 1, 8, 8},    {1, 3, 5, 4, 3}, {1, 2, 67, 20, 17},  {1, 2, several_tiles(), 16, 16},
                         {1, 2, 70, 64, 64}, {1, 1, 9, 1, 1}, {1, 1, 35, 130, 40}, {1, 1, 20, 40, 150}};
  // Heads that share their keys: all of them, also in widths of several parts; pairs; and enough key heads that work is
  // not divided further.
  std::vector<Sizes> shared{{1, 3, 35, 8, 5, 3}, {1, 2, 20, 40, 150, 2}, {1, 4, 20, 4, 4, 2}};
  if (default_device() == Device{}) shared.insert(shared.end(), {{1, 4, 67, 20, 17, 2}, {17, 2, 20, 4, 4, 2}});
  all.insert(all.end(), shared.begin(), shared.end());
  // The length that is timed, which takes the others minutes.
  if (default_device().type == DeviceType::cuda) all.push_back({1, 1, 4096, 64, 64});
  return all;
}

// If the CPU executes the kernels of a GPU, every case has a quarter of the sizes, and its neighbours have the others.
// Under AddressSanitizer it has an eighth.
bool left_to_neighbours(std::size_t one, std::size_t size) {
  return testing::takes_a_share() && (one + size) % (testing::repeats_show_nothing() ? 8 : 4) != 0;
}

// Shared memory as GPUs have less of it, on cuda-host while this lives: every second case, in turns with the other test
// of all cases, so that each size of each is computed with 99 KiB and with 227.
class LessSharedMemory {
 public:
  explicit LessSharedMemory(bool less) : before_(cuda_host::settings()) {
    cuda_host::Settings own = before_;
    if (less) own.shared_kib = 99;
    cuda_host::set_settings(own);
  }
  ~LessSharedMemory() { cuda_host::set_settings(before_); }
  LessSharedMemory(const LessSharedMemory&) = delete;
  LessSharedMemory& operator=(const LessSharedMemory&) = delete;

 private:
  cuda_host::Settings before_;
};

void expect_equal_forms(double dropout) {
  // Under ThreadSanitizer only the tiled kernels run, because only they can have races. Their numbers are checked in
  // other builds, which are faster.
  const bool few = testing::only_small_kernels(default_device());
  const std::vector<ShapeCase> cases = shape_cases();
  const std::vector<Sizes> all = all_sizes();
  for (std::size_t n = 0; n < cases.size(); ++n) {
    for (std::size_t m = 0; m < all.size(); ++m) {
      // Softpick rescales two sums from one tile of keys to the next.
      const bool needed = cases[n].name.starts_with("softpick") && all[m].length == several_tiles();
      if (!few && !needed && left_to_neighbours(n, m)) continue;
      const LessSharedMemory some((n + m) / 2 % 2 == (dropout > 0 ? 0 : 1));
      const ShapeCase& one = cases[n];
      const Sizes& sizes = all[m];
      SCOPED_TRACE(formatted("{} T {} d {} shared by {}", one.name, sizes.length, sizes.width, sizes.shared_by));
      const Outcome tiled = compute(one, sizes, DType::f64, true, dropout);
      if (!few) expect_equal(tiled, compute(one, sizes, DType::f64, false, dropout));
    }
  }
}

TEST_P(Tiled, EqualsTheComposedFormInDouble) { expect_equal_forms(0); }
TEST_P(Tiled, DropsTheSameWeightsAsTheComposedForm) {
  if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "ThreadSanitizer: weights are dropped in any schedule";
  expect_equal_forms(0.25);
}

// If a window or a chunk is much shorter than the text, its rows are divided into shares with the keys that they attend
// to. Gradients by distance or position are sums over all shares.
TEST_P(Tiled, AddsUpOverSharesWhatBelongsToNoKey) {
  if (GetParam() != Device{} || testing::only_small_kernels(GetParam())) GTEST_SKIP() << "the CPU's shares";
  constexpr Sizes sizes{1, 1, 1100, 4, 4};
  for (ShapeCase one : testing::product_cases()) {
    for (const AttentionMask mask : {AttentionMask{.window = 40}, AttentionMask{.chunk = 40}}) {
      SCOPED_TRACE(formatted("{} window {}", one.name, mask.window));
      one.mask = mask;
      expect_equal(compute(one, sizes, DType::f64, true, 0), compute(one, sizes, DType::f64, false, 0));
    }
  }
}

TEST_P(Tiled, GivesTheSameBitsForAnyNumberOfThreads) {
  if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  if (GetParam() != Device{} && testing::repeats_show_nothing()) GTEST_SKIP() << "under AddressSanitizer";
  const int before = thread_count();
  std::size_t turn = 0;
  // More heads than threads, in more sequences than one; where the CPU executes the kernels that is enough.
  const Sizes many = testing::takes_a_share() ? Sizes{2, 3, 70, 8, 8} : Sizes{3, 7, 70, 8, 8};
  for (const ShapeCase& one : shape_cases()) {
    SCOPED_TRACE(one.name);
    ++turn;
    for (const Sizes& sizes : {Sizes{1, 2, 2 * several_tiles(), 16, 16}, many, Sizes{1, 6, several_tiles(), 8, 8, 3}}) {
      if (testing::takes_a_share() && turn++ % 6 != 0) continue;  // one for every second shape
      set_thread_count(1);
      const Outcome alone = compute(one, sizes, DType::f32, true);
      for (const int threads : {2, 3}) {
        if (threads == 2 && !one.all_tokens) continue;
        set_thread_count(threads);
        expect_same_bits(compute(one, sizes, DType::f32, true), alone);
      }
    }
  }
  set_thread_count(before);
}

// Every form of the kernels with every shape: each width of a block in shared memory, heads in several parts, each
// precision of matmuls, with dropout. If another order of threads and blocks changes a bit, a barrier is missing. One
// of the other orders has less shared memory, which changes the width of a head's slices but no bit. The two alternate.
TEST_P(Tiled, GivesTheSameBitsInAnySchedule) {
  if (GetParam() != testing::on_cuda_host) GTEST_SKIP() << "schedules are those of cuda-host";
  const bool few = testing::only_small_kernels(GetParam());
  const std::set<std::string> families{"plain", "table_own_gates", "segments", "stick", "table_and_every_bias"};
  std::vector<std::pair<Sizes, MatmulPrecision>> forms{{{1, 2, 35, 8, 8, 2}, MatmulPrecision::f32}};
  if (!few) {
    forms = {{{1, 1, 70, 64, 64}, MatmulPrecision::f32},
             {{1, 1, 40, 128, 100}, MatmulPrecision::tf32},
             {{1, 2, 70, 32, 24}, MatmulPrecision::bf16},
             {{1, 4, 35, 32, 20, 2}, MatmulPrecision::f32},
             {{1, 1, 35, 200, 136}, MatmulPrecision::f32}};
  }
  const cuda_host::Settings before = cuda_host::settings();
  std::size_t seen = 0;
  for (const ShapeCase& one : shape_cases()) {
    if (few && !families.contains(one.name)) continue;
    ++seen;
    for (std::size_t form = 0; form < forms.size(); ++form) {
      if (!few && testing::takes_a_share() && (seen + form) % 2 != 0) continue;
      const auto& [sizes, precision] = forms[form];
      SCOPED_TRACE(formatted("{} T {} d {}", one.name, sizes.length, sizes.width));
      set_matmul_precision(precision);
      const Outcome expected = compute(one, sizes, DType::f32, true, 0.25);
      for (const auto schedule : {cuda_host::Schedule::reverse, cuda_host::Schedule::random}) {
        if (few || testing::repeats_show_nothing()) continue;  // one call shows sanitizers all they look for
        const bool less = schedule == cuda_host::Schedule::reverse;
        if (testing::takes_a_share() && less == ((seen + form) / 2 % 2 == 0))
          continue;  // its neighbours take the other
        cuda_host::set_settings({.schedule = schedule, .seed = 3, .shared_kib = less ? 99 : 227});
        expect_same_bits(compute(one, sizes, DType::f32, true, 0.25), expected);
      }
      cuda_host::set_settings(before);
    }
  }
  set_matmul_precision(MatmulPrecision::f32);
  EXPECT_GE(seen, families.size());
}

// The last rows of a sequence give the same without the other rows: a text is generated token by token.
TEST_P(Tiled, TakesTheLastRowsAlone) {
  if (testing::only_small_kernels(GetParam())) GTEST_SKIP() << "under ThreadSanitizer";
  const Sizes all{1, 2, 150, 8, 8};
  for (const ShapeCase& one : shape_cases()) {
    if (one.all_tokens) continue;
    SCOPED_TRACE(one.name);
    std::map<std::string, Tensor> leaves;
    const auto attention = [&](std::int64_t rows) {
      // Tensors with an axis of queries keep their last rows.
      const Leaf leaf = [&](const std::string& name, const Shape& shape, double deviation) {
        Tensor tensor = normal_tensor(name, shape, deviation);
        const bool by_query = name == "z" || name == "u" || name == "rest" || name == "by_row" || name == "rise" ||
                              name == "dense" || name == "row" || name == "rows" || name == "q" ||
                              name == "gate_query" || name == "r" || name == "row_factor" ||
                              name.starts_with("by_query");
        return by_query ? slice(tensor, 2, shape[2] - rows, shape[2]) : tensor;
      };
      const Shape shape{all.batch, all.heads, all.length, all.width};
      const AttentionOperands in{leaf("q", shape, 1.5), leaf("k", shape, 1.5), leaf("v", shape, 1), 0.35, one.mask};
      Score score;
      one.make({all, leaf, score});
      for (Bias& bias : score.biases) {
        auto* row_column = std::get_if<RowColumn>(&bias);
        if (row_column == nullptr || !row_column->row.defined()) continue;
        const std::int64_t length = row_column->row.size(2);
        row_column->row = slice(row_column->row, 2, length - rows, length);
      }
      return tiled_attention(in, score);
    };
    const Tensor whole = attention(all.length);
    for (const std::int64_t rows : {1, 5, 80}) {
      EXPECT_LE(largest_difference(attention(rows), slice(whole, 2, all.length - rows, all.length)),
                1e-12 * largest(whole));
    }
  }
}

// Rows first .. last of a tensor with an axis of queries or keys.
std::vector<double> rows_of(const Tensor& x, std::int64_t first, std::int64_t last) {
  return slice(x, 2, first, last + 1).to_vector<double>();
}

bool all_numbers(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

// The first 128 keys are a tile. For the rows 256 .. 299, a tile too, none of its weights matter. NaN in its values
// shows whether it is computed: even a weight of 0 times NaN is NaN.
void expect_left_out(const ShapeCase& one) {
  SCOPED_TRACE(one.name);
  const Sizes sizes{1, 2, 300, 8, 8};
  const auto of = [&](bool spoil) {
    return compute(one, sizes, DType::f64, true, 0, [&](const std::string& name, const Shape& shape, double deviation) {
      Tensor tensor = normal_tensor(name, shape, deviation);
      // All products positive: every key takes a large part of the stick.
      if (one.name == "stick" && (name == "q" || name == "k")) tensor = abs(tensor);
      if (!spoil || name != "v") return tensor;
      const Tensor none = Tensor::full({shape[0], shape[1], 128, shape[3]}, std::nan(""), DType::f64, default_device());
      return concat(std::vector<Tensor>{none, slice(tensor, 2, 128, shape[2])}, 2);
    });
  };
  const Outcome expected = of(false), found = of(true);
  EXPECT_EQ(rows_of(found.output, 256, 299), rows_of(expected.output, 256, 299));
  EXPECT_EQ(rows_of(found.gradients.at("q"), 256, 299), rows_of(expected.gradients.at("q"), 256, 299));
  // Rows for which the tile is computed, because it matters to other rows of their tile.
  EXPECT_FALSE(all_numbers(rows_of(found.output, 191, 191)));
}

TEST(TiledOnCpu, LeavesOutTilesThatDoNotMatter) {
  const auto falling = [](const Sizes& sizes, const Shape& shape) {
    return broadcast_to(times(cumsum(Tensor::full({sizes.length}, 1, DType::f64, default_device())), -10), shape);
  };
  // Weights of e^-1290 and less.
  expect_left_out({"toeplitz", [&](const ShapeParts& x) {
                     x.score.biases.push_back(Toeplitz{falling(x.s, {x.s.heads, x.s.length})});
                   }});
  expect_left_out({"row_column", [&](const ShapeParts& x) {
                     const Tensor total = falling(x.s, {x.s.batch, x.s.heads, x.s.length});
                     x.score.biases.push_back(RowColumn{total, negate(total)});
                   }});
  // The stick is used up.
  expect_left_out({"stick", [](const ShapeParts& x) { x.stick(); }});
}

TEST_P(Tiled, NamesTheOperandThatDoesNotFit) {
  const auto error = [](auto&& change) {
    AttentionOperands in{normal_tensor("q", {1, 2, 4, 8}), normal_tensor("k", {1, 2, 4, 8}),
                         normal_tensor("v", {1, 2, 4, 8}), 1};
    Score score;
    try {
      change(in, score);
      tiled_attention(in, score);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was refused");
  };
  const auto holds = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.k = normal_tensor("k", {1, 2, 4, 6}); }), "[1, 2, 4, 6]"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.v = normal_tensor("v", {1, 2, 3, 8}); }), "[1, 2, 3, 8]"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) {
                      in.q = normal_tensor("q", {1, 3, 4, 8});
                    }),
                    "the 2 heads of k do not divide the 3 of q"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.v = normal_tensor("v", {1, 1, 4, 8}); }), "[1, 1, 4, 8]"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.q = normal_tensor("q", {1, 2, 5, 8}); }), "5 of them for 4 keys"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) {
                      in.q = normal_tensor("q", {2, 4, 8});
                    }),
                    "q must be [B, H, T, d], got [2, 4, 8]"));
  EXPECT_TRUE(holds(error([](auto& in, auto&) { in.mask.window = -1; }), "from 0 to 2^31 - 1, got -1"));
  EXPECT_TRUE(holds(error([](auto&, auto& score) {
                      score.set_softmax_rule({SoftmaxRule::Kind::softmax, normal_tensor("c", {3})});
                    }),
                    "the sink must be f64 [2], got f64 [3]"));
  EXPECT_TRUE(holds(error([](auto&, auto& score) {
                      score.add_score_mod(contextual_table(normal_tensor("z", {1, 2, 3, 5})));
                    }),
                    "the table of positions must be f64 [1, 2, 4, 5]"));
  EXPECT_TRUE(
      holds(error([](auto&, auto& score) {
              score.biases.push_back(Product{normal_tensor("r", {1, 2, 4, 3}), normal_tensor("g", {1, 2, 5, 3})});
            }),
            "the key of a product must be f64 and as [1, 2, 4, 8] but for its width, got f64 [1, 2, 5, 3]"));
  EXPECT_TRUE(holds(error([](auto&, auto& score) {
                      score.biases.push_back(Toeplitz{normal_tensor("b", {2, 3})});
                    }),
                    "3 distances does not cover 4 tokens"));
  EXPECT_TRUE(holds(error([](auto&, auto& score) {
                      score.biases.push_back(RowColumn{normal_tensor("r", {1, 2, 4}).to(DType::f32), {}});
                    }),
                    "a row bias must be f64"));
  const auto product = [&](const Shape& query, const Shape& key) {
    return error([&](auto&, auto& score) {
      score.add_score_mod(contextual_table(products_of_rows(normal_tensor("r", query), normal_tensor("e", key))));
    });
  };
  EXPECT_TRUE(holds(product({1, 2, 4, 3}, {1, 1, 5, 2}), "divide H, got f64 [1, 2, 4, 3] and f64 [1, 1, 5, 2]"));
  EXPECT_TRUE(holds(product({1, 2, 4, 0}, {1, 1, 5, 0}), "products of rows need a query"));
}

}  // namespace tiled_test
}  // namespace tally

// A block of rows goes along k in steps, and along n in strips whose part of b stays in the first caches. a is read
// where it lies. Where b is not row-major, narrower than a vector, or alpha is not 1, it is copied, times alpha:
// beforehand for all blocks, or where sums are long, step by step.
#include "core/cpu/matmul_small.hpp"

#include <omp.h>

#include <algorithm>

#include "core/cpu/lane_product.hpp"
#include "core/cpu/product_end.hpp"
#include "core/cpu/product_parts.hpp"
#include "core/cpu/strided.hpp"
#include "core/cpu/transposed.hpp"
#include "core/workspace.hpp"

namespace tally::cpu {
namespace {

constexpr std::int64_t lanes = vector_lanes<float>;
constexpr std::int64_t step = 256, step_of_long_sums = 128;  // along k
constexpr std::int64_t block_rows = 96;                      // of a block
constexpr std::int64_t least_inner = 512;                    // of a part of a long sum
constexpr std::int64_t task_work = 1 << 18;                  // multiply-adds worth handing to another thread

// How a product is cut; of its shape alone.
struct Blocks {
  std::int64_t matrices, m, n, k;
  std::int64_t ld_b;         // of the copy
  std::int64_t parts, part;  // of sums, and the numbers in each but the last
  std::int64_t rows;         // of a block

  Blocks(std::int64_t of_matrices, std::int64_t of_m, std::int64_t of_n, std::int64_t of_k)
      : matrices(of_matrices), m(of_m), n(of_n), k(of_k), ld_b(round_up(of_n, lanes)) {
    parts = parts_of_sums(matrices, m, n, k, least_inner);
    part = std::max<std::int64_t>(1, divide_up(k, parts));
    parts = std::max<std::int64_t>(1, divide_up(k, part));
    rows = parts > 1 ? m : block_rows;
  }
  std::int64_t inner() const { return parts > 1 ? step_of_long_sums : step; }
  std::int64_t row_blocks() const { return divide_up(m, rows); }
  std::int64_t blocks() const { return matrices * parts * row_blocks(); }
};

struct Memory {
  float* parts;  // of the sums, but the first
  float* b;      // copies of all matrices, or a step of one for each thread
  float* column_sums;
  std::int64_t b_size;

  Memory(const Blocks& by, bool sums_columns, Arena& arena)
      : parts(arena.take<float>(ProductParts::size(by.matrices, by.m, by.n, by.parts))),
        b_size((by.parts > 1 ? std::min(by.inner(), by.k) : by.k) * by.ld_b) {
    b = arena.take<float>((by.parts > 1 ? thread_count() : by.matrices) * b_size);
    column_sums = arena.take<float>(ProductRows<float>::count(sums_columns, by.row_blocks(), by.n));
  }
};

// A matrix: element (i, j) at data[i * row_step + j * column_step], one of which is 1.
struct Operand {
  const float* data;
  std::int64_t row_step, column_step;
};

// Rows ld apart, 0 for one that all have; null: zeros.
struct Start {
  const float* data;
  std::int64_t ld;
};

class Product {
 public:
  Product(const View& c, std::int64_t ld_c, const View& a, const View& b, const ProductEnd& end, Arena arena)
      : by_(batch_of(c).numel(), c.shape.back(1), c.shape.back(0), a.shape.back(0)),
        memory_(by_, bool{end.column_sums}, arena),
        layout_a_(*layout_of(a)),
        layout_b_(*layout_of(b)),
        a_(a.as<float>()),
        b_(b.as<float>()),
        bias_(end.bias),
        addend_(end.addend),
        rows_(end, by_.row_blocks(), by_.n, memory_.column_sums),
        c_(c, ld_c, by_.parts, memory_.parts),
        alpha_(static_cast<float>(end.alpha)),
        copies_b_(layout_b_.transposed || by_.n < lanes || alpha_ != 1),
        batch_(make_loop(batch_of(c).shape, batch_of(a), batch_of(b))) {}

  void compute() const {
    if (copies_b_ && by_.parts == 1) {
      const std::int64_t strips = by_.ld_b / lanes;
      parallel_for_blocks(
          by_.matrices * strips, rows_per_tile(by_.k * lanes), [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t strip = begin; strip < end; ++strip) {
              const std::int64_t matrix = strip / strips;
              copy_columns(memory_.b + matrix * memory_.b_size, b_of(matrix), by_.k, strip % strips * lanes);
            }
          });
    }
    const std::int64_t work = std::max<std::int64_t>(1, by_.matrices * by_.m * by_.n * by_.k / by_.blocks());
    parallel_for_blocks(by_.blocks(), std::max<std::int64_t>(1, task_work / work),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t index = begin; index < end; ++index) compute_block(index);
                        });
    c_.add();
    if (rows_.is_given() && by_.parts > 1) {
      const auto [c, ld_c] = c_.rows(0, 0, 0);
      rows_.finish(c, ld_c, 0, 0, by_.m, 0, by_.n);
    }
    rows_.add_column_sums();
  }

 private:
  static Operand operand(const float* data, const Layout& layout) {
    return layout.transposed ? Operand{data, 1, layout.ld} : Operand{data, layout.ld, 1};
  }
  Operand b_of(std::int64_t matrix) const { return operand(b_ + batch_.element_offsets(matrix)[1], layout_b_); }

  // The columns from `first` on that make up a vector, of `rows` rows of alpha b.
  void copy_columns(float* y, const Operand& b, std::int64_t rows, std::int64_t first) const {
    const std::int64_t end = std::min(first + lanes, by_.n);
    if (layout_b_.transposed) {
      copy_transposed(y + first, by_.ld_b, b.data + first * b.column_step, b.column_step, end - first, rows, alpha_);
    } else {
      for (std::int64_t k = 0; k < rows; ++k) {
        for (std::int64_t j = first; j < end; ++j) y[k * by_.ld_b + j] = alpha_ * b.data[k * b.row_step + j];
      }
    }
    if (end == first + lanes) return;
    for (std::int64_t k = 0; k < rows; ++k) {
      std::fill(y + k * by_.ld_b + end, y + k * by_.ld_b + first + lanes, 0.0F);
    }
  }

  void compute_block(std::int64_t index) const {
    const std::int64_t row_block = index % by_.row_blocks(), part = index / by_.row_blocks() % by_.parts;
    const std::int64_t matrix = index / by_.row_blocks() / by_.parts;
    const std::int64_t i = row_block * by_.rows, rows = std::min(by_.rows, by_.m - i);
    const std::int64_t begin = part * by_.part, end = std::min(by_.k, begin + by_.part);
    const auto [c, ld_c] = c_.rows(matrix, part, i);
    const Operand a = operand(a_ + batch_.element_offsets(matrix)[0], layout_a_);
    // What sums begin with. A bias of each row, which transposed results have, is written to c beforehand. A residual,
    // beside which the terms may be small, is added at the end.
    Start start{nullptr, 0};
    const bool to_c = addend_ && addend_.data == c_.data();
    if (part == 0 && to_c) start = {c, ld_c};
    if (part == 0 && bias_ && !to_c && bias_.strides[1] == 1) {
      start = {bias_.as<float>(), 0};
    } else if (part == 0 && bias_) {
      write_bias(c, ld_c, to_c, i, rows);
      start = {c, ld_c};
    }
    for (std::int64_t k = begin; k == begin || k < end; k += by_.inner()) {
      const std::int64_t inner = std::min(by_.inner(), end - k);
      Operand b = b_of(matrix);
      if (!copies_b_) {
        b.data += k * b.row_step;
      } else if (by_.parts > 1) {
        float* const own = memory_.b + omp_get_thread_num() * memory_.b_size;
        const Operand from{b.data + k * b.row_step, b.row_step, b.column_step};
        for (std::int64_t j = 0; j < by_.n; j += lanes) copy_columns(own, from, inner, j);
        b = {own, by_.ld_b, 1};
      } else {
        b = {memory_.b + matrix * memory_.b_size + k * by_.ld_b, by_.ld_b, 1};
      }
      multiply(c, ld_c, start, {a.data + i * a.row_step + k * a.column_step, a.row_step, a.column_step}, b, rows,
               inner);
      start = {c, ld_c};
    }
    if (part == 0 && addend_ && !to_c) add_residual(c, ld_c, i, rows);
    if (rows_.is_given() && by_.parts == 1) rows_.finish(c, ld_c, row_block, i, rows, 0, by_.n);
  }

  // c = start + a b
  void multiply(float* c, std::int64_t ld_c, const Start& start, const Operand& a, const Operand& b, std::int64_t rows,
                std::int64_t inner) const {
    const std::int64_t whole = by_.n / lanes * lanes, left = by_.n - whole;
    if (whole > 0) {
      lane_product(c, ld_c, start.data, start.ld, a.data, a.row_step, a.column_step, b.data, b.row_step, rows, whole,
                   inner);
    }
    if (left == 0) return;
    // The last columns, which fill no vector, take some before them along.
    const std::int64_t first = std::max<std::int64_t>(0, by_.n - lanes), known = whole - first;
    const float* const last_b = b.data + first;
    if (known > 0 && start.data != c) {  // these come out the same once more
      return lane_product(c + first, ld_c, start.data != nullptr ? start.data + first : nullptr, start.ld, a.data,
                          a.row_step, a.column_step, last_b, b.row_step, rows, lanes, inner);
    }
    constexpr std::int64_t most_rows = 48;
    for (std::int64_t row = 0; row < rows; row += most_rows) {
      const std::int64_t count = std::min(most_rows, rows - row);
      float sums[most_rows * lanes] = {};
      for (std::int64_t i = 0; start.data != nullptr && i < count; ++i) {
        std::copy_n(start.data + (row + i) * start.ld + whole, left, sums + i * lanes + known);
      }
      lane_product(sums, lanes, a.data + row * a.row_step, a.row_step, a.column_step, last_b, b.row_step, count, lanes,
                   inner, true);
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(sums + i * lanes + known, left, c + (row + i) * ld_c + whole);
      }
    }
  }

  void add_residual(float* c, std::int64_t ld_c, std::int64_t first_row, std::int64_t rows) const {
    const std::int64_t ld = layout_of(addend_)->ld;
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const row = addend_.as<float>() + (first_row + i) * ld;
      for (std::int64_t j = 0; j < by_.n; ++j) c[i * ld_c + j] += row[j];
    }
  }
  // c = bias (+ c)
  void write_bias(float* c, std::int64_t ld_c, bool to_c, std::int64_t first_row, std::int64_t rows) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const values = bias_.as<float>() + (first_row + i) * bias_.strides[0];
      for (std::int64_t j = 0; j < by_.n; ++j) {
        c[i * ld_c + j] = values[j * bias_.strides[1]] + (to_c ? c[i * ld_c + j] : 0.0F);
      }
    }
  }

  Blocks by_;
  Memory memory_;
  Layout layout_a_, layout_b_;
  const float *a_, *b_;
  View bias_, addend_;
  ProductRows<float> rows_;
  ProductParts c_;
  float alpha_;
  bool copies_b_;
  Loop<2> batch_;  // offsets of the matrices of a, b
};

}  // namespace

bool is_small_product(std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t k) {
  // Of b for few rows and for many, which make up for its copy, and of a long sum's c: elements that cores keep near.
  constexpr std::int64_t most_b = 1 << 14, most_b_of_many = 1 << 18, most_c = 1 << 15;
  constexpr std::int64_t least_rows = 16, many_rows = 1024, most_matrices = 16;
  if (register_bytes() < 64 || matrices > most_matrices || k == 0) return false;
  if (Blocks(matrices, m, n, k).parts > 1) return m * n <= most_c;
  return m >= least_rows && n * k <= (m >= many_rows ? most_b_of_many : most_b);
}

std::int64_t matmul_small_workspace(std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t k) {
  Arena arena(nullptr);
  Memory(Blocks(matrices, m, n, k), matrices == 1, arena);
  return arena.bytes();
}

void matmul_small(const View& c, std::int64_t ld_c, const View& a, const View& b, const ProductEnd& end,
                  void* workspace) {
  Product(c, ld_c, a, b, end, Arena(workspace)).compute();
}

}  // namespace tally::cpu

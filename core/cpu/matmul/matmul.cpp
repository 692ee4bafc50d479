// Matrix products, also of batches: c[..., M, N] = epilogue(a[..., M, K] b[..., K, N]). README.md walks through one.
//
// For each block of c (partition.hpp) and each step along K: pack the rows of A and the panels of B that are needed,
// multiply tile by tile (microkernel.hpp), and store each finished tile through the epilogue (epilogue.hpp). f64, and
// f32 if OpenBLAS is faster, use one call of OpenBLAS for each block instead. A transposed c is computed as c^T = b^T
// a^T.
#include "core/cpu/matmul/matmul.hpp"

#include <omp.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/matmul/epilogue.hpp"
#include "core/cpu/matmul/microkernel_f32.hpp"
#include "core/cpu/matmul/partition.hpp"
#include "core/cpu/strided.hpp"
#include "core/device/backend.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "core/matrix_layout.hpp"

namespace tally::cpu {

namespace {

constexpr std::int64_t task_work = 1 << 18;  // multiply-adds worth handing to another thread
constexpr int most_tile = 48 * 64;           // sums of the largest tile of a microkernel

// Columns of B that a block packs at a time: 512 KiB.
std::int64_t packed_columns(const Microkernel& kernel, const Partition& by) {
  constexpr std::int64_t most_words = 1 << 17;
  const std::int64_t depth = std::max<std::int64_t>(1, kernel.depth(std::min({by.step, by.split, by.k})));
  return std::clamp<std::int64_t>(most_words / depth / kernel.columns * kernel.columns, kernel.columns, by.columns);
}

template <class T>
struct Buffers {
  std::uint32_t* panels = nullptr;  // of all matrices, if they are shared
  T* splits = nullptr;              // [splits, matrices, M, N]
  T* column_sums = nullptr;         // of each block of rows
  // Of each thread: rows of A with ld_a words each, panels of B, and the sums of a block between steps.
  std::uint32_t *a = nullptr, *b = nullptr;
  float* sums = nullptr;
  std::int64_t ld_a = 0, a_size = 0, b_size = 0, sums_size = 0;

  Buffers(const Microkernel* kernel, const Partition& by, Arena& arena) {
    if (by.splits > 1) splits = arena.take<T>(by.splits * by.matrices * by.m * by.n);
    if (by.matrices == 1) column_sums = arena.take<T>(by.row_blocks() * by.n);
    if (kernel == nullptr) return;
    const std::int64_t threads = thread_count(), all_panels = by.matrices * divide_up(by.n, kernel->columns);
    if (by.shares_b) panels = arena.take<std::uint32_t>(all_panels * kernel->depth(by.k) * kernel->columns);
    const std::int64_t depth = kernel->depth(std::min(by.step, by.k));
    ld_a = depth + bf16_pairs;  // rows of a power of two would fall on the same lines of a cache
    a_size = by.rows * ld_a;
    a = arena.take<std::uint32_t>(threads * a_size);
    if (!by.shares_b) b_size = depth * packed_columns(*kernel, by);
    b = arena.take<std::uint32_t>(threads * b_size);
    if (by.splits == 1 && by.k > by.step) sums_size = by.rows * by.columns;
    sums = arena.take<float>(threads * sums_size);
  }
};

template <class T>
class Matmul {
 public:
  // c is row-major with rows ld_c apart; the bias is [M, N].
  Matmul(const Microkernel* kernel, const Partition& by, const View& c, std::int64_t ld_c, const View& a, const View& b,
         Epilogue epilogue, Arena arena)
      : kernel_(kernel),
        by_(by),
        buffers_(kernel, by_, arena),
        a_(a),
        b_(b),
        layout_a_(*layout_of(a)),
        layout_b_(*layout_of(b)),
        epilogue_(c, ld_c, epilogue),
        begin_(c, ld_c, {}),
        total_(epilogue.column_sums ? epilogue.column_sums.as<T>() : nullptr),
        batch_(make_loop(batch_of(c).shape, batch_of(c), batch_of(a), batch_of(b))) {
    // OpenBLAS applies alpha and adds to c. Writing the other operands to c first saves another pass over it.
    if (kernel != nullptr || by_.splits > 1) return;
    blas_alpha_ = static_cast<T>(std::exchange(epilogue.alpha, 1));
    const Epilogue begin{.bias = std::exchange(epilogue.bias, {}), .residual = std::exchange(epilogue.residual, {})};
    begin_ = TileEpilogue<T>(c, ld_c, begin);
    epilogue_ = TileEpilogue<T>(c, ld_c, epilogue);
  }

  void compute() const {
    if (kernel_ == nullptr) load_blas();
    if (by_.shares_b) pack_all_panels();
    const std::int64_t work = std::max<std::int64_t>(1, by_.matrices * by_.m * by_.n * by_.k / by_.blocks());
    parallel_for_blocks(by_.blocks(), std::max<std::int64_t>(1, task_work / work),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t index = begin; index < end; ++index) compute_block(index);
                        });
    if (by_.splits > 1) add_splits();
    if (total_ != nullptr) add_column_sums(by_.splits > 1 ? 1 : by_.row_blocks());
  }

 private:
  struct Block {
    std::int64_t matrix, split, i, j, rows, columns, k, end;
  };

  void compute_block(std::int64_t index) const {
    const auto next = [&](std::int64_t count) {
      const std::int64_t value = index % count;
      index /= count;
      return value;
    };
    Block at{};
    at.j = next(by_.column_blocks()) * by_.columns;
    at.i = next(by_.row_blocks()) * by_.rows;
    at.split = next(by_.splits);
    at.matrix = index;
    at.rows = std::min(by_.rows, by_.m - at.i);
    at.columns = std::min(by_.columns, by_.n - at.j);
    at.k = at.split * by_.split;
    at.end = std::min(by_.k, at.k + by_.split);
    TileEpilogue<T> to = epilogue_.at(batch_.element_offsets(at.matrix)[0], at.i, at.j);
    if (total_ != nullptr && by_.splits == 1) {
      to.column_sums = buffers_.column_sums + at.i / by_.rows * by_.n + at.j;
      std::fill_n(to.column_sums, at.columns, T{0});
    }
    if constexpr (std::is_same_v<T, float>) {
      if (kernel_ != nullptr) return multiply_packed(at, to);
    }
    multiply_by_blas(at, to);
  }

  T* split_sums(std::int64_t matrix, std::int64_t split, std::int64_t i, std::int64_t j) const {
    return buffers_.splits + ((split * by_.matrices + matrix) * by_.m + i) * by_.n + j;
  }

  void multiply_by_blas(const Block& at, const TileEpilogue<T>& to) const {
    const std::int64_t rows = at.rows, columns = at.columns, inner = at.end - at.k;
    const auto offset = batch_.element_offsets(at.matrix);
    const bool is_split = by_.splits > 1;
    T* const c = is_split ? split_sums(at.matrix, at.split, at.i, at.j) : to.c;
    const std::int64_t ld = is_split ? by_.n : to.ld_c;
    const bool adds = !is_split && (!begin_.is_identity() || inner == 0);
    const bool c_begins = begin_.bias == nullptr && begin_.residual == begin_.c;  // it holds the residual already
    if (adds && !c_begins) begin_.at(offset[0], at.i, at.j).store(nullptr, 0, rows, columns);
    const auto element = [](const View& x, const Layout& layout, std::int64_t from, std::int64_t i, std::int64_t j) {
      return x.as<T>() + from + (layout.transposed ? i + j * layout.ld : i * layout.ld + j);
    };
    if (inner > 0) {
      gemm_tile(layout_a_.transposed, layout_b_.transposed, static_cast<int>(rows), static_cast<int>(columns),
                static_cast<int>(inner), blas_alpha_, element(a_, layout_a_, offset[1], at.i, at.k),
                static_cast<int>(layout_a_.ld), element(b_, layout_b_, offset[2], at.k, at.j),
                static_cast<int>(layout_b_.ld), adds ? T{1} : T{0}, c, static_cast<int>(ld));
    }
    if (!is_split && !to.is_identity()) to.store(c, ld, rows, columns);
  }

  // Rows of A, in place or packed; row r begins at rows.words + r ld.
  struct PackedA {
    RowsOfA rows;
    std::int64_t ld;
  };
  // One step along K: where the sums of a block are held until its last step ends; null: from none to none.
  struct Step {
    std::int64_t depth;
    bool begins, ends;
    float* held;
    std::int64_t ld_held;
  };

  void multiply_packed(const Block& at, const TileEpilogue<T>& to) const {
    const std::int64_t thread = omp_get_thread_num(), group = packed_columns(*kernel_, by_);
    std::uint32_t* const own_b = buffers_.b + thread * buffers_.b_size;
    Step step{};
    if (by_.splits > 1) {
      step.held = split_sums(at.matrix, at.split, at.i, at.j);
      step.ld_held = by_.n;
    } else if (by_.k > by_.step) {
      step.held = buffers_.sums + thread * buffers_.sums_size;
      step.ld_held = by_.columns;
    }
    kernel_->begin();
    for (std::int64_t k = at.k; k == at.k || k < at.end; k += by_.step) {
      const std::int64_t count = std::min(by_.step, at.end - k);
      step.depth = kernel_->depth(count);
      step.begins = k == at.k;
      step.ends = k + by_.step >= at.end && by_.splits == 1;
      const PackedA a = rows_of_a(at, k, count, buffers_.a + thread * buffers_.a_size);
      for (std::int64_t first = 0; first < at.columns; first += group) {
        const std::int64_t end = std::min(at.columns, first + group);
        const auto panel_at = [&](std::int64_t column) {
          return by_.shares_b ? shared_panel(at.matrix, at.j + column, k) : own_b + (column - first) * step.depth;
        };
        for (std::int64_t column = first; !by_.shares_b && column < end; column += kernel_->columns) {
          pack_panel(panel_at(column), at.matrix, at.j + column, k, count);
        }
        for (std::int64_t row = 0; row < at.rows; row += kernel_->rows) {
          const RowsOfA rows{a.rows.words + row * a.ld, a.rows.row_step, a.rows.depth_step};
          for (std::int64_t column = first; column < end; column += kernel_->columns) {
            multiply_tile(step, at, row, column, rows, panel_at(column), to);
          }
        }
      }
    }
    kernel_->end();
  }

  void multiply_tile(const Step& step, const Block& at, std::int64_t row, std::int64_t column, const RowsOfA& a,
                     const std::uint32_t* panel, const TileEpilogue<T>& block) const {
    alignas(64) float near[most_tile];
    SumTile tile{.c = near, .ld_c = kernel_->columns};
    tile.rows = std::min<std::int64_t>(kernel_->rows, at.rows - row);
    tile.columns = std::min<std::int64_t>(kernel_->columns, at.columns - column);
    if (step.held != nullptr) {
      tile.c = step.held + row * step.ld_held + column;
      tile.add = !step.begins;
      tile.ld_c = step.ld_held;
    }
    if (!step.ends) return kernel_->multiply(step.depth, a, panel, tile);
    const TileEpilogue<T> to = block.at(0, row, column);
    to.prefetch(tile.rows, tile.columns);
    if (to.is_identity() && !tile.add) {
      tile.c = to.c;
      tile.ld_c = to.ld_c;
      return kernel_->multiply(step.depth, a, panel, tile);
    }
    kernel_->multiply(step.depth, a, panel, tile);
    to.store(tile.c, tile.ld_c, tile.rows, tile.columns);
  }

  // Packs numbers k to k + count of `lines` rows of A, or columns of B, from x on.
  void pack(std::uint32_t* y, std::int64_t ld_y, bool of_a, std::int64_t matrix, std::int64_t x, std::int64_t lines,
            std::int64_t k, std::int64_t count) const {
    if (count == 0) return;  // the operand may have no address
    const View& operand = of_a ? a_ : b_;
    const Layout& layout = of_a ? layout_a_ : layout_b_;
    const std::int64_t offset = batch_.element_offsets(matrix)[of_a ? 1 : 2];
    const auto from = [&]<class X>(X) {
      const X* const data = operand.as<X>() + offset;
      Unpacked<X> all = layout.transposed == of_a ? Unpacked<X>{data, 1, layout.ld} : Unpacked<X>{data, layout.ld, 1};
      all.data = all.at(x, k);
      return all;
    };
    const std::int64_t depth = kernel_->depth(count);
    if (operand.dtype == DType::bf16) return kernel_->pack_bf16(y, ld_y, of_a, from(Bfloat16{}), lines, count, depth);
    kernel_->pack(y, ld_y, of_a, from(float{}), lines, count, depth);
  }

  std::uint32_t* shared_panel(std::int64_t matrix, std::int64_t column, std::int64_t k) const {
    const std::int64_t panels = divide_up(by_.n, kernel_->columns), panel = column / kernel_->columns;
    return buffers_.panels +
           ((matrix * panels + panel) * kernel_->depth(by_.k) + k / kernel_->numbers) * kernel_->columns;
  }
  void pack_panel(std::uint32_t* y, std::int64_t matrix, std::int64_t column, std::int64_t k,
                  std::int64_t count) const {
    pack(y, kernel_->columns, false, matrix, column, std::min<std::int64_t>(kernel_->columns, by_.n - column), k,
         count);
  }
  void pack_all_panels() const {
    const std::int64_t panels = divide_up(by_.n, kernel_->columns);
    parallel_for_blocks(by_.matrices * panels, rows_per_tile(by_.k * kernel_->columns),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t index = begin; index < end; ++index) {
                            const std::int64_t matrix = index / panels, column = index % panels * kernel_->columns;
                            pack_panel(shared_panel(matrix, column, 0), matrix, column, 0, by_.k);
                          }
                        });
  }

  // Rows of a row-major A stay in place if a microkernel can read their words: f32, or whole aligned pairs of bf16.
  PackedA rows_of_a(const Block& at, std::int64_t k, std::int64_t count, std::uint32_t* own) const {
    const std::int64_t offset = batch_.element_offsets(at.matrix)[1] + at.i * layout_a_.ld + k;
    if (!layout_a_.transposed && kernel_->numbers == 1 && count > 0) {
      return {{reinterpret_cast<const std::uint32_t*>(a_.as<float>() + offset), layout_a_.ld}, layout_a_.ld};
    }
    const bool whole = count > 0 && count % (2 * bf16_pairs) == 0 && at.rows % kernel_->rows == 0;
    if (a_.dtype == DType::bf16 && !layout_a_.transposed && layout_a_.ld % 2 == 0 && whole) {
      const void* const words = a_.as<Bfloat16>() + offset;
      if (reinterpret_cast<std::uintptr_t>(words) % sizeof(std::uint32_t) == 0) {
        return {{static_cast<const std::uint32_t*>(words), layout_a_.ld / 2}, layout_a_.ld / 2};
      }
    }
    pack(own, buffers_.ld_a, true, at.matrix, at.i, at.rows, k, count);
    if (kernel_->numbers == 1) return {{own, 1, kernel_->rows}, buffers_.ld_a};
    return {{own, buffers_.ld_a}, buffers_.ld_a};
  }

  // c from the parts of split sums, which are added in their order.
  void add_splits() const {
    constexpr std::int64_t rows = 16, columns = 64;
    const std::int64_t column_tiles = divide_up(by_.n, columns);
    parallel_for(by_.matrices * column_tiles, [&](std::int64_t index) {
      const std::int64_t matrix = index / column_tiles, j = index % column_tiles * columns;
      const std::int64_t width = std::min(columns, by_.n - j);
      T* const sums = total_ != nullptr ? buffers_.column_sums + j : nullptr;
      if (sums != nullptr) std::fill_n(sums, width, T{0});
      for (std::int64_t i = 0; i < by_.m; i += rows) {
        const std::int64_t height = std::min(rows, by_.m - i);
        T tile[static_cast<std::size_t>(rows * columns)] = {};
        for (std::int64_t split = 0; split < by_.splits; ++split) {
          for (std::int64_t row = 0; row < height; ++row) {
            const T* const part = split_sums(matrix, split, i + row, j);
            for (std::int64_t column = 0; column < width; ++column) tile[row * columns + column] += part[column];
          }
        }
        TileEpilogue<T> to = epilogue_.at(batch_.element_offsets(matrix)[0], i, j);
        to.column_sums = sums;
        to.store(tile, columns, height, width);
      }
    });
  }

  void add_column_sums(std::int64_t blocks) const {
    parallel_for_blocks(by_.n, rows_per_tile(blocks), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) {
        double sum = 0;
        for (std::int64_t block = 0; block < blocks; ++block) {
          sum += static_cast<double>(buffers_.column_sums[block * by_.n + j]);
        }
        total_[j] = static_cast<T>(sum);
      }
    });
  }

  const Microkernel* kernel_;
  Partition by_;
  Buffers<T> buffers_;
  View a_, b_;
  Layout layout_a_, layout_b_;
  TileEpilogue<T> epilogue_, begin_;  // begin_: what OpenBLAS adds its sums to
  T* total_;                          // the column sums of all rows, or null
  Loop<3> batch_;                     // offsets of the matrices of c, a, b
  T blas_alpha_ = 1;
};

// The partition of c, which is row-major, or transposed and computed as c^T.
Partition partition_of(const Microkernel* kernel, const View& c, const View& a) {
  std::int64_t m = c.shape.back(1), n = c.shape.back(0);
  const std::int64_t k = a.shape.back(0);
  if (layout_of(c)->transposed) std::swap(m, n);
  return {kernel, batch_of(c).numel(), m, n, k, c.dtype == DType::bf16};
}

// Null for OpenBLAS: always in f64, and in f32 where it was faster (README.md).
const Microkernel* microkernel_of(const View& c, const View& a) {
  if (c.dtype == DType::f64 || c.numel() == 0) return nullptr;
  if (matmul_precision() == MatmulPrecision::bf16) return &bf16_microkernel();
#ifdef TALLY_WITHOUT_OPENBLAS  // WebAssembly (tasks/course/live)
  return &f32_microkernel();
#else
  // B stays in a core's own cache, for few rows and for many, which make up for its packing; of a long sum, c does.
  constexpr std::int64_t most_b = 1 << 14, most_b_of_many = 1 << 18, most_c = 1 << 15;
  constexpr std::int64_t least_rows = 16, many_rows = 1024, most_matrices = 16;
  const Partition by = partition_of(&f32_microkernel(), c, a);
  if (register_bytes() < 64 || by.matrices > most_matrices) return nullptr;
  const bool fits = by.splits > 1 ? by.m * by.n <= most_c
                                  : by.m >= least_rows && by.n * by.k <= (by.m >= many_rows ? most_b_of_many : most_b);
  return fits ? &f32_microkernel() : nullptr;
#endif
}

}  // namespace

std::int64_t matmul_workspace_by(const Microkernel* kernel, View c, const View& a) {
  if (c.numel() == 0) return 0;
  Arena arena(nullptr);
  const Partition by = partition_of(kernel, c, a);
  if (c.dtype == DType::f64) {
    Buffers<double>(kernel, by, arena);
  } else {
    Buffers<float>(kernel, by, arena);
  }
  return arena.bytes();
}

void matmul_by(const Microkernel* kernel, View c, View a, View b, const Epilogue& given, void* workspace) {
  if (c.numel() == 0) {
    if (given.column_sums) fill(given.column_sums, 0);
    return;
  }
  const Partition by = partition_of(kernel, c, a);
  Epilogue epilogue = given;
  if (epilogue.bias) {
    epilogue.bias.shape = {c.shape.back(1), c.shape.back(0)};
    epilogue.bias.strides = {{0, epilogue.bias.strides[0]}};
  }
  Layout layout = *layout_of(c);
  if (layout.transposed) {
    c = transposed(c);
    a = transposed(std::exchange(b, transposed(a)));
    if (epilogue.bias) epilogue.bias = transposed(epilogue.bias);
  }
  if (c.dtype == DType::f64)
    return Matmul<double>(kernel, by, c, layout.ld, a, b, epilogue, Arena(workspace)).compute();
  Matmul<float>(kernel, by, c, layout.ld, a, b, epilogue, Arena(workspace)).compute();
}

std::int64_t matmul_sums_rows(View, View, View) { return 0; }
std::int64_t matmul_workspace(View c, View a) { return matmul_workspace_by(microkernel_of(c, a), c, a); }
void matmul(View c, View a, View b, const Epilogue& epilogue, void* workspace) {
  matmul_by(microkernel_of(c, a), c, a, b, epilogue, workspace);
}

}  // namespace tally::cpu

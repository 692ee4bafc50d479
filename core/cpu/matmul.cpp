// Matrix products, also of batches: c[..., M, N] = alpha a[..., M, K] b[..., K, N], + bias [N] on each row, + addend.
//
// Every product is cut into tiles, each of them one single-threaded BLAS call, but for those of f32 that another file
// computes faster (core/cpu/matmul_small.hpp). Where c is transposed, c^T = b^T a^T is computed.
#include <algorithm>
#include <utility>

#include "core/backend.hpp"
#include "core/cpu/blas.hpp"
#include "core/cpu/matmul_bf16.hpp"
#include "core/cpu/matmul_small.hpp"
#include "core/cpu/product_end.hpp"
#include "core/cpu/strided.hpp"
#include "core/kernels.hpp"
#include "core/matrix_layout.hpp"

namespace tally::cpu {

namespace {

// Multiply-adds worth handing to another thread; smaller tiles are handed out several at a time.
constexpr std::int64_t task_work = 1 << 20;

// An axis cut into parts of one size; the last may be smaller.
class Cut {
 public:
  Cut(std::int64_t size, std::int64_t parts) : size_(size), part_(std::max<std::int64_t>(1, size)) {
    constexpr std::int64_t block = 16;  // BLAS computes blocks of about this size and is slower on their remainders
    if (parts > 1) part_ = ((size + parts - 1) / parts + block - 1) / block * block;
  }
  std::int64_t parts() const { return std::max<std::int64_t>(1, (size_ + part_ - 1) / part_); }
  std::int64_t begin(std::int64_t index) const { return index * part_; }
  std::int64_t count(std::int64_t index) const { return std::min(part_, size_ - index * part_); }

 private:
  std::int64_t size_, part_;
};

// How each matrix product is cut.
struct Tiling {
  Cut rows, columns, inner;
  std::int64_t tiles() const { return rows.parts() * columns.parts() * inner.parts(); }
};

// Depends on the shape alone, never on the number of threads: so do the bits. A tile packs its parts of a and b anew,
// which costs the less, the longer its sides; below these it is more than 5% of the time.
Tiling choose_tiling(std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t least_rows = 256, least_columns = 512, least_inner = 1024, most = 1024;
  constexpr std::int64_t enough = 4;  // tiles for two threads, one of which may be late
  // Few long sums, as in the gradient of a weight, where K counts all tokens: parts of the sums are computed side by
  // side.
  if (matrices < enough && k >= 4 * std::max(m, n)) {
    return {Cut(m, 1), Cut(n, 1), Cut(k, std::clamp<std::int64_t>(k / least_inner, 1, enough))};
  }
  std::int64_t row_parts = 1, column_parts = 1;
  while (true) {
    const std::int64_t rows = m / row_parts, columns = n / column_parts;
    const bool by_rows = rows >= columns;
    if (std::max(rows, columns) <= most && matrices * row_parts * column_parts >= enough) break;
    if (by_rows ? rows < 2 * least_rows : columns < 2 * least_columns) break;
    (by_rows ? row_parts : column_parts) *= 2;
  }
  return {Cut(m, row_parts), Cut(n, column_parts), Cut(k, 1)};
}

template <class T>
class Product {
 public:
  // c is row-major with rows ld_c apart; the bias is [M, N] with stride 0 along one of them, or absent.
  Product(const View& c, std::int64_t ld_c, const View& a, const View& b, const ProductEnd& end)
      : m_(c.shape.back(1)),
        n_(c.shape.back(0)),
        k_(a.shape.back(0)),
        matrices_(batch_of(c).numel()),
        a_(a),
        b_(b),
        layout_a_(*layout_of(a)),
        layout_b_(*layout_of(b)),
        c_(c.as<T>()),
        ld_c_(ld_c),
        bias_(end.bias),
        addend_(end.addend),
        end_(end),
        alpha_(static_cast<T>(end.alpha)),
        batch_(make_loop(batch_of(c).shape, batch_of(c), batch_of(a), batch_of(b))),
        tiling_(choose_tiling(matrices_, m_, n_, k_)) {}

  // What further parts of sums take, and sums of columns of every row of tiles.
  static std::int64_t workspace_count(const Tiling& tiling, std::int64_t matrices, std::int64_t m, std::int64_t n) {
    return (tiling.inner.parts() - 1) * matrices * m * n + ProductRows<T>::count(matrices == 1, tiling.rows.parts(), n);
  }

  void compute(void* workspace) {
    load_blas();
    parts_ = static_cast<T*>(workspace);
    const ProductRows<T> rows(end_, tiling_.rows.parts(), n_,
                              parts_ + (tiling_.inner.parts() - 1) * matrices_ * m_ * n_);
    rows_ = &rows;
    compute_all();
    rows.add_column_sums();
  }

 private:
  void compute_all() {
    const std::int64_t tile_work = std::max<std::int64_t>(1, m_ * n_ * k_ / tiling_.tiles());
    parallel_for_blocks(matrices_ * tiling_.tiles(), std::max<std::int64_t>(1, task_work / tile_work),
                        [&](std::int64_t begin, std::int64_t end) {
                          for (std::int64_t index = begin; index < end; ++index) compute_tile(index);
                        });
    if (tiling_.inner.parts() == 1) return;
    parallel_for_blocks(matrices_ * m_, rows_per_tile(n_), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) add_parts(row / m_, row % m_);
    });
    if (rows_->is_given()) rows_->finish(c_, ld_c_, 0, 0, m_, 0, n_);
  }

  T* result(std::int64_t matrix, std::int64_t i) const { return c_ + batch_.element_offsets(matrix)[0] + i * ld_c_; }
  // Element (i, j) of the matrix at `offset`.
  static const T* element(const View& x, const Layout& layout, std::int64_t offset, std::int64_t i, std::int64_t j) {
    return x.as<T>() + offset + (layout.transposed ? i + j * layout.ld : i * layout.ld + j);
  }
  // Row i of what part 1, 2, ... of the sums over K comes to; part 0 is written to c.
  T* partial(std::int64_t matrix, std::int64_t part, std::int64_t i) const {
    return parts_ + ((matrix * (tiling_.inner.parts() - 1) + part - 1) * m_ + i) * n_;
  }

  void compute_tile(std::int64_t index) const {
    const auto next = [&](const Cut& cut) {
      const std::int64_t part = index % cut.parts();
      index /= cut.parts();
      return part;
    };
    const std::int64_t part = next(tiling_.inner), column_tile = next(tiling_.columns), row_tile = next(tiling_.rows);
    const std::int64_t matrix = index;
    const std::int64_t i = tiling_.rows.begin(row_tile), rows = tiling_.rows.count(row_tile);
    const std::int64_t j = tiling_.columns.begin(column_tile), columns = tiling_.columns.count(column_tile);
    const std::int64_t l = tiling_.inner.begin(part), inner = tiling_.inner.count(part);

    T* const tile = (part == 0 ? result(matrix, i) : partial(matrix, part, i)) + j;
    const std::int64_t ld = part == 0 ? ld_c_ : n_;
    // BLAS begins by writing zeros; to add to what else there is instead costs nothing.
    const bool to_c = addend_ && addend_.data == c_;
    const bool begins = part == 0 && (bias_ || (addend_ && !to_c) || (!to_c && inner == 0));
    if (begins) start_tile(tile, rows, columns, i, j, to_c);
    const auto finish = [&] {
      if (rows_->is_given() && tiling_.inner.parts() == 1) rows_->finish(tile, ld, row_tile, i, rows, j, columns);
    };
    if (inner == 0) return finish();
    const bool adds = begins || (part == 0 && to_c);
    const auto offset = batch_.element_offsets(matrix);
    gemm_tile(layout_a_.transposed, layout_b_.transposed, static_cast<int>(rows), static_cast<int>(columns),
              static_cast<int>(inner), alpha_, element(a_, layout_a_, offset[1], i, l), static_cast<int>(layout_a_.ld),
              element(b_, layout_b_, offset[2], l, j), static_cast<int>(layout_b_.ld), adds ? T{1} : T{0}, tile,
              static_cast<int>(ld));
    finish();
  }

  // tile = bias + addend
  void start_tile(T* tile, std::int64_t rows, std::int64_t columns, std::int64_t first_row, std::int64_t first_column,
                  bool is_there) const {
    for (std::int64_t i = 0; i < rows; ++i) {
      T* const row = tile + i * ld_c_;
      if (!is_there && addend_) {
        std::copy_n(addend_.as<T>() + (first_row + i) * layout_of(addend_)->ld + first_column, columns, row);
      } else if (!is_there) {
        std::fill_n(row, columns, T{0});
      }
      if (!bias_) continue;
      const std::int64_t step = bias_.strides[1];
      const T* const values = bias_.as<T>() + (first_row + i) * bias_.strides[0] + first_column * step;
      for (std::int64_t j = 0; j < columns; ++j) row[j] += values[j * step];
    }
  }

  void add_parts(std::int64_t matrix, std::int64_t i) const {
    T* const row = result(matrix, i);
    for (std::int64_t part = 1; part < tiling_.inner.parts(); ++part) {
      const T* const addend = partial(matrix, part, i);
      for (std::int64_t j = 0; j < n_; ++j) row[j] += addend[j];
    }
  }

  std::int64_t m_, n_, k_, matrices_;
  View a_, b_;
  Layout layout_a_, layout_b_;
  T* c_;
  std::int64_t ld_c_;
  View bias_, addend_;
  const ProductEnd& end_;
  const ProductRows<T>* rows_ = nullptr;
  T alpha_;
  Loop<3> batch_;  // offsets of the matrices of c, a, b
  Tiling tiling_;
  T* parts_ = nullptr;
};

bool is_small(DType dtype, std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t k) {
  return dtype == DType::f32 && is_small_product(matrices, m, n, k);
}

bool in_bf16(DType dtype) {
  return (dtype == DType::f32 || dtype == DType::bf16) && product_precision() == ProductPrecision::bf16;
}

}  // namespace

// What the further parts of long sums come to.
std::int64_t matmul_workspace(View c, View a) {
  std::int64_t m = c.shape.back(1), n = c.shape.back(0), k = a.shape.back(0);
  if (c.numel() == 0) return 0;
  if (layout_of(c)->transposed) std::swap(m, n);
  if (in_bf16(c.dtype)) return matmul_bf16_workspace(c, m, n, k);
  if (is_small(c.dtype, batch_of(c).numel(), m, n, k)) return matmul_small_workspace(batch_of(c).numel(), m, n, k);
  const std::int64_t matrices = batch_of(c).numel(),
                     count = Product<float>::workspace_count(choose_tiling(matrices, m, n, k), matrices, m, n);
  return count * static_cast<std::int64_t>(size_of(c.dtype));
}

void matmul(View c, View a, View b, const ProductEnd& given, void* workspace) {
  if (c.numel() == 0) {
    if (given.column_sums) fill(given.column_sums, 0);
    return;
  }
  ProductEnd end = given;
  if (end.bias) {
    end.bias.shape = {c.shape.back(1), c.shape.back(0)};
    end.bias.strides = {{0, end.bias.strides[0]}};
  }
  Layout layout = *layout_of(c);
  if (layout.transposed) {
    layout.transposed = false;
    c = transposed(c);
    a = transposed(std::exchange(b, transposed(a)));
    if (end.bias) end.bias = transposed(end.bias);
  }
  if (in_bf16(c.dtype)) return matmul_bf16(c, layout.ld, a, b, end, workspace);
  if (is_small(c.dtype, batch_of(c).numel(), c.shape.back(1), c.shape.back(0), a.shape.back(0))) {
    return matmul_small(c, layout.ld, a, b, end, workspace);
  }
  dispatch_floating(c.dtype, [&](auto zero) { Product<decltype(zero)>(c, layout.ld, a, b, end).compute(workspace); });
}

}  // namespace tally::cpu

// Matrix products of bf16, cut into blocks by shape alone. A block packs its rows of a, a step along the inner axis at
// a time, unless they are pairs of bf16 as they lie, and goes tile by tile along its columns with a tile's rows of it,
// so that c is written row by row, where most of the memory goes. Where few matrices have many rows, as in a layer, b
// is packed once for all blocks beforehand; else a block packs what it is about to use, and has so many rows that this
// costs little. Long sums, as in the gradient of a weight, are cut into parts that are computed side by side.
#include "core/cpu/matmul_bf16.hpp"

#include <omp.h>

#include <algorithm>

#include "core/cpu/product_end.hpp"
#include "core/cpu/product_parts.hpp"
#include "core/cpu/strided.hpp"
#include "core/workspace.hpp"

namespace tally::cpu {
namespace {

constexpr std::int64_t few_rows = 96;        // of a block beside panels that are there
constexpr std::int64_t many_rows = 384;      // of one that packs them
constexpr std::int64_t all_rows = 1152;      // of one that packs a long part of them
constexpr std::int64_t whole_tiles = 96;     // rows of every kind's tiles fit into so many
constexpr std::int64_t most_columns = 1024;  // of a block
constexpr std::int64_t least_inner = 1024;   // of a part of a sum
// Elements of either operand that are packed at a time, which stay in a core's own cache, and how far along the inner
// axis they go.
constexpr std::int64_t packed_elements = std::int64_t{1} << 18, most_inner = 1024, narrowest_inner = 256;

constexpr std::int64_t multiple(std::int64_t n, std::int64_t of) { return divide_up(n, of) * of; }
// Packed pairs of so many numbers.
constexpr std::int64_t pairs_of(std::int64_t k) { return multiple(divide_up(k, 2), tile_pairs); }

// How a product is cut; of its shape alone.
struct Blocks {
  std::int64_t matrices, m, n, k;
  bool shares_b;               // packed beforehand
  std::int64_t rows, columns;  // of a block
  std::int64_t parts, part;    // of sums, and the numbers in each but the last
  std::int64_t step;           // numbers along the inner axis at a time
  std::int64_t row_blocks, column_blocks;

  // whole_sums: none is cut.
  Blocks(std::int64_t of_matrices, std::int64_t of_m, std::int64_t of_n, std::int64_t of_k, bool whole_sums)
      : matrices(of_matrices), m(of_m), n(of_n), k(of_k) {
    parts = whole_sums ? 1 : parts_of_sums(matrices, m, n, k, least_inner);
    part = multiple(std::max<std::int64_t>(1, divide_up(k, parts)), 2 * tile_pairs);
    parts = std::max<std::int64_t>(1, divide_up(k, part));
    shares_b = matrices < enough_blocks && parts == 1;
    const std::int64_t most_rows = shares_b ? few_rows : parts > 1 ? all_rows : many_rows;
    rows = multiple(divide_up(m, divide_up(m, most_rows)), whole_tiles);
    columns = std::min(multiple(n, tile_columns), most_columns);
    while (shares_b && columns >= 2 * tile_columns &&
           matrices * divide_up(m, rows) * divide_up(n, columns) < enough_blocks) {
      columns = multiple(columns / 2, tile_columns);
    }
    step = most_inner;
    while (step > narrowest_inner && step * rows > packed_elements) step /= 2;
    row_blocks = divide_up(m, rows);
    column_blocks = divide_up(n, columns);
  }

  std::int64_t blocks() const { return matrices * parts * row_blocks * column_blocks; }
  std::int64_t panels() const { return divide_up(n, tile_columns); }
  std::int64_t ld_a() const { return pairs_of(std::min(step, k)) + tile_pairs; }  // a line more, for the cache
  bool several_steps() const { return std::min(part, k) > step; }
  // Columns of b that are packed at a time.
  std::int64_t group() const {
    const std::int64_t inner = 2 * pairs_of(std::min({step, part, k}));
    return std::clamp(packed_elements / std::max<std::int64_t>(1, inner) / tile_columns * tile_columns,
                      std::int64_t{tile_columns}, columns);
  }
};

// What one thread works with.
struct Scratch {
  std::uint32_t *a, *b;
  float* sums;
};

struct Memory {
  std::uint32_t* b = nullptr;  // all panels
  float* parts = nullptr;      // of the sums, but the first
  std::uint32_t* thread_a;
  std::uint32_t* thread_b = nullptr;
  float* thread_sums = nullptr;
  float* column_sums;  // of every block of rows
  std::int64_t a_size, b_size = 0, sums_size = 0;

  Memory(const Blocks& by, bool sums_columns, Arena& arena) {
    const std::int64_t threads = thread_count();
    if (by.shares_b) b = arena.take<std::uint32_t>(by.matrices * by.panels() * pairs_of(by.k) * tile_columns);
    parts = arena.take<float>(ProductParts::size(by.matrices, by.m, by.n, by.parts));
    a_size = by.rows * by.ld_a();
    thread_a = arena.take<std::uint32_t>(threads * a_size);
    if (!by.shares_b) b_size = pairs_of(std::min(by.step, by.k)) * by.group();
    thread_b = arena.take<std::uint32_t>(threads * b_size);
    if (by.several_steps()) sums_size = by.rows * by.columns;
    thread_sums = arena.take<float>(threads * sums_size);
    column_sums = arena.take<float>(sums_columns ? by.row_blocks * by.n : 0);
  }
  Scratch of_thread() const {
    const std::int64_t thread = omp_get_thread_num();
    return {thread_a + thread * a_size, thread_b + thread * b_size, thread_sums + thread * sums_size};
  }
};

class Product {
 public:
  Product(const View& c, std::int64_t ld_c, const View& a, const View& b, const ProductEnd& end, const Bf16Tiles& tiles,
          Arena arena)
      : by_(batch_of(c).numel(), c.shape.back(1), c.shape.back(0), a.shape.back(0), c.dtype == DType::bf16),
        memory_(by_, c.dtype == DType::bf16, arena),
        tiles_(tiles),
        a_(a),
        b_(b),
        end_(end),
        c_(c, ld_c, by_.parts, memory_.parts),
        rounded_(c.dtype == DType::bf16 ? c.as<Bfloat16>() : nullptr),
        ld_c_(ld_c),
        batch_(make_loop(batch_of(c).shape, batch_of(a), batch_of(b))) {}

  void compute() const {
    if (by_.shares_b) {
      parallel_for(by_.matrices * by_.panels(), [&](std::int64_t index) {
        const std::int64_t matrix = index / by_.panels(), panel = index % by_.panels();
        pack_panel(shared_panel(matrix, panel, 0), matrix, panel, 0, by_.k);
      });
    }
    parallel_for(by_.blocks(), [&](std::int64_t index) { compute_block(index); });
    c_.add();
    if (end_.column_sums) add_blocks(end_.column_sums.as<float>(), memory_.column_sums, by_.row_blocks, by_.n);
  }

 private:
  // Packs numbers k to k + inner of `count` lines from x on: rows of a, columns of b.
  void pack(std::uint32_t* y, std::int64_t ld_y, bool of_a, std::int64_t matrix, std::int64_t x, std::int64_t count,
            std::int64_t k, std::int64_t inner) const {
    if (inner == 0) return;  // of an operand that may have no address
    const View& operand = of_a ? a_ : b_;
    const Layout layout = *layout_of(operand);
    const std::int64_t offset = batch_.element_offsets(matrix)[of_a ? 0 : 1];
    const auto from = [&]<class X>(X) {
      const X* const data = operand.as<X>() + offset;
      Unpacked<X> all = layout.transposed == of_a ? Unpacked<X>{data, 1, layout.ld} : Unpacked<X>{data, layout.ld, 1};
      all.data = all.at(x, k);
      return all;
    };
    const std::int64_t pairs = pairs_of(inner);
    if (operand.dtype == DType::bf16) return tiles_.pack_bf16(y, ld_y, of_a, from(Bfloat16{}), count, inner, pairs);
    tiles_.pack(y, ld_y, of_a, from(float{}), count, inner, pairs);
  }

  // From the pair that has number k on.
  std::uint32_t* shared_panel(std::int64_t matrix, std::int64_t panel, std::int64_t k) const {
    return memory_.b + ((matrix * by_.panels() + panel) * pairs_of(by_.k) + k / 2) * tile_columns;
  }
  void pack_panel(std::uint32_t* y, std::int64_t matrix, std::int64_t panel, std::int64_t k, std::int64_t inner) const {
    const std::int64_t j = panel * tile_columns, count = std::min<std::int64_t>(tile_columns, by_.n - j);
    pack(y, tile_columns, false, matrix, j, count, k, inner);
  }

  // Rows i to i + rows of a, whose numbers k to k + inner are packed pairs as they lie; null where they are not.
  const std::uint32_t* rows_as_they_lie(std::int64_t matrix, std::int64_t i, std::int64_t rows, std::int64_t k,
                                        std::int64_t inner) const {
    const Layout layout = *layout_of(a_);
    const bool whole = inner > 0 && inner % (2 * tile_pairs) == 0 && rows % tiles_.rows == 0;
    if (a_.dtype != DType::bf16 || layout.transposed || layout.ld % 2 != 0 || !whole) return nullptr;
    const void* const data = a_.as<Bfloat16>() + batch_.element_offsets(matrix)[0] + i * layout.ld + k;
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % sizeof(std::uint32_t) == 0;
    return aligned ? static_cast<const std::uint32_t*>(data) : nullptr;
  }

  void compute_block(std::int64_t index) const {
    const auto next = [&](std::int64_t count) {
      const std::int64_t value = index % count;
      index /= count;
      return value;
    };
    const std::int64_t j = next(by_.column_blocks) * by_.columns, i = next(by_.row_blocks) * by_.rows;
    const std::int64_t part = next(by_.parts), matrix = index;
    const std::int64_t rows = std::min(by_.rows, by_.m - i), columns = std::min(by_.columns, by_.n - j);
    const std::int64_t k = part * by_.part, end = std::min(by_.k, k + by_.part);
    const Scratch scratch = memory_.of_thread();
    const auto [c, ld_c] = c_.rows(matrix, part, i);  // of a c of f32
    TileSums sums{.ld_c = ld_c, .alpha = static_cast<float>(end_.alpha)};
    const auto [addend, ld_addend] = part == 0 ? addend_of(c, ld_c, i) : ProductParts::Rows{};
    const bool bias_by_column = part == 0 && bias_is_by_column();
    float* const column_sums = end_.column_sums ? memory_.column_sums + i / by_.rows * by_.n + j : nullptr;
    if (column_sums != nullptr) std::fill_n(column_sums, columns, 0.0F);
    tiles_.begin();
    for (std::int64_t l = k; l == k || l < end; l += by_.step) {
      const std::int64_t inner = std::min(by_.step, end - l), pairs = pairs_of(inner);
      const std::uint32_t* a = rows_as_they_lie(matrix, i, rows, l, inner);
      const std::int64_t ld_a = a != nullptr ? layout_of(a_)->ld / 2 : by_.ld_a();
      if (a == nullptr) {
        pack(scratch.a, ld_a, true, matrix, i, rows, l, inner);
        a = scratch.a;
      }
      const bool last = l + by_.step >= end;
      for (std::int64_t first = 0; first < columns; first += by_.group()) {
        const std::int64_t behind = std::min(columns, first + by_.group());
        const auto panel_at = [&](std::int64_t column) {
          return by_.shares_b ? shared_panel(matrix, (j + column) / tile_columns, l)
                              : scratch.b + (column - first) * pairs;
        };
        for (std::int64_t column = first; !by_.shares_b && column < behind; column += tile_columns) {
          pack_panel(panel_at(column), matrix, (j + column) / tile_columns, l, inner);
        }
        for (std::int64_t row = 0; row < rows; row += tiles_.rows) {
          TileSums tile = sums;
          tile.rows = std::min<std::int64_t>(tiles_.rows, rows - row);
          tile.ld_before = by_.columns;
          if (!last) {
            tile.ld_c = by_.columns;
            tile.alpha = 1;
          }
          for (std::int64_t column = first; column < behind; column += tile_columns) {
            // One step along k keeps nothing between steps, and has no memory for it.
            float* const kept = l == k && last ? nullptr : scratch.sums + row * by_.columns + column;
            tile.columns = std::min<std::int64_t>(tile_columns, columns - column);
            tile.before = l > k ? kept : nullptr;
            tile.c = last ? nullptr : kept;
            if (last && rounded_ != nullptr) end_rounded(tile, i + row, j + column);
            if (last && rounded_ == nullptr) tile.c = c + row * sums.ld_c + j + column;
            if (last && bias_by_column) tile.bias = end_.bias.as<float>() + j + column;
            if (last && addend != nullptr) {
              tile.addend = addend + row * ld_addend + j + column;
              tile.ld_addend = ld_addend;
            }
            if (last && column_sums != nullptr) tile.column_sums = column_sums + column;
            tiles_.multiply(pairs, a + row * ld_a, ld_a, panel_at(column), tile);
          }
        }
      }
    }
    tiles_.end();
    if (end_.bias && part == 0 && !bias_by_column) add_bias(c, ld_c, i, j, rows, columns);
  }

  // Of one column it may have any step.
  bool bias_is_by_column() const {
    return end_.bias && (end_.bias.strides[1] == 1 || (by_.n == 1 && end_.bias.strides[0] == 0));
  }

  // The rows from i on of what is added to c, whose rows from there on are given.
  ProductParts::Rows addend_of(float* c, std::int64_t ld_c, std::int64_t i) const {
    if (!end_.addend) return {};
    if (end_.addend.data == c_.data()) return {c, ld_c};
    const std::int64_t ld = layout_of(end_.addend)->ld;
    return {end_.addend.as<float>() + i * ld, ld};
  }

  // What is written of a c of bf16 from element (i, j) on.
  void end_rounded(TileSums& tile, std::int64_t i, std::int64_t j) const {
    tile.rounded = rounded_ + i * ld_c_ + j;
    tile.activation = end_.activation;
    tile.op = end_.op;
    if (end_.argument) tile.argument = end_.argument.as<Bfloat16>() + i * ld_c_ + j;
  }

  // Of transposed results, whose rows have one number of it each, and of one that is repeated.
  void add_bias(float* c, std::int64_t ld_c, std::int64_t i, std::int64_t j, std::int64_t rows,
                std::int64_t columns) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      const View& bias = end_.bias;
      const float* const values = bias.as<float>() + (i + row) * bias.strides[0] + j * bias.strides[1];
      for (std::int64_t column = 0; column < columns; ++column) {
        c[row * ld_c + j + column] += values[column * bias.strides[1]];
      }
    }
  }

  Blocks by_;
  Memory memory_;
  const Bf16Tiles& tiles_;
  View a_, b_;
  ProductEnd end_;  // its bias [M, N]
  ProductParts c_;
  Bfloat16* rounded_;  // c of bf16, else null
  std::int64_t ld_c_;
  Loop<2> batch_;  // offsets of the matrices of a, b
};

}  // namespace

std::int64_t matmul_bf16_workspace(const View& c, std::int64_t m, std::int64_t n, std::int64_t k) {
  Arena arena(nullptr);
  const bool rounded = c.dtype == DType::bf16;
  Memory(Blocks(batch_of(c).numel(), m, n, k, rounded), rounded, arena);
  return arena.bytes();
}

void matmul_bf16(const View& c, std::int64_t ld_c, const View& a, const View& b, const ProductEnd& end, void* workspace,
                 const Bf16Tiles& tiles) {
  Product(c, ld_c, a, b, end, tiles, Arena(workspace)).compute();
}

}  // namespace tally::cpu

#include "cuda/emulator/tensor_cores.hpp"

#include <bit>
#include <utility>

#include "cuda/emulator/block.hpp"

namespace tally::cuda_host::detail {

namespace {

constexpr int row_lanes = 4, matrix_rows = 8;

float element(std::uint32_t bits, int packed, int half) {
  return std::bit_cast<float>(packed == 1 ? bits : half == 0 ? bits << 16 : bits & 0xffff0000U);
}

// A register has `packed` neighbours in k, four lanes follow each other in k, then comes the next register. a's
// registers alternate between its upper and lower rows. c's lane l has rows l / 4 and l / 4 + 8, columns 2 (l % 4) and
// the next.
template <int packed>
void multiply(void* const* lanes) {
  const auto own = [&](int lane) -> MmaRegisters& { return *static_cast<MmaRegisters*>(lanes[lane]); };
  for (int k = 0; k < 2 * row_lanes * packed; ++k) {
    const int later = k / (row_lanes * packed), lane = k / packed % row_lanes, half = k % packed;
    float x[2 * matrix_rows], y[matrix_rows];
    for (int line = 0; line < matrix_rows; ++line) {
      const MmaRegisters& from = own(row_lanes * line + lane);
      x[line] = element(from.a[2 * later], packed, half);
      x[matrix_rows + line] = element(from.a[2 * later + 1], packed, half);
      y[line] = element(from.b[later], packed, half);
    }
    for (int line = 0; line < warpSize; ++line) {
      MmaRegisters& to = own(line);
      const int row = line / row_lanes, column = 2 * (line % row_lanes);
      to.c[0] += x[row] * y[column];
      to.c[1] += x[row] * y[column + 1];
      to.c[2] += x[matrix_rows + row] * y[column];
      to.c[3] += x[matrix_rows + row] * y[column + 1];
    }
  }
}

template <bool transposed>
void distribute(void* const* lanes) {
  std::uint16_t rows[warpSize][2 * row_lanes];
  for (int lane = 0; lane < warpSize; ++lane) std::memcpy(&rows[lane], lanes[lane], sizeof rows[lane]);
  for (int lane = 0; lane < warpSize; ++lane) {
    const int line = lane / row_lanes, first = 2 * (lane % row_lanes);
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto at = [&](int place) -> std::uint32_t {
        return transposed ? rows[matrix_rows * matrix + place][line] : rows[matrix_rows * matrix + line][place];
      };
      static_cast<MatrixRegisters*>(lanes[lane])->x[matrix] = at(first) | at(first + 1) << 16;
    }
  }
}

void execute(void (*work)(void* const*), void* own, const char* name, SourceLine line) {
  constexpr std::uint32_t whole = 0xffffffffU;
  warp_meet({WarpOperation::collective, whole, name, line, std::bit_cast<std::uintptr_t>(own), 0, work});
}

}  // namespace

void mma_of_lanes(MmaRegisters& own, int packed, SourceLine line) {
  execute(packed == 1 ? &multiply<1> : &multiply<2>, &own, "mma.sync", line);
}
void exchange_matrices(MatrixRegisters& own, bool transposed, SourceLine line) {
  execute(transposed ? &distribute<true> : &distribute<false>, &own, "ldmatrix", line);
}

bool delays_copy(const AsyncCopy& copy) { return Block::own().delay_copy(copy); }
bool take_copy(AsyncCopy& copy) { return Block::own().take_copy(copy); }

}  // namespace tally::cuda_host::detail

// Several views of one shape as one nest of loops. Axes are merged as far as all views allow, so that dense tensors
// become one long row. Kernels of every device use the offsets.
#pragma once

#include <array>
#include <cstdint>

#include "core/math/random.hpp"
#include "core/view.hpp"

namespace tally {

// N views as nested loops, the last axis innermost; steps count elements.
template <std::size_t N>
struct Loop {
  int rank = 0;
  std::array<std::int64_t, max_rank> size{};
  std::array<std::array<std::int64_t, N>, max_rank> step{};

  TALLY_HOST_DEVICE std::int64_t inner_size() const { return size[static_cast<std::size_t>(rank - 1)]; }
  TALLY_HOST_DEVICE const std::array<std::int64_t, N>& inner_step() const {
    return step[static_cast<std::size_t>(rank - 1)];
  }
  // Rows are all axes except the innermost, row-major. Returns the offset of each view at the start of a row.
  TALLY_HOST_DEVICE std::int64_t rows() const {
    std::int64_t n = 1;
    for (std::size_t axis = 0; axis + 1 < static_cast<std::size_t>(rank); ++axis) n *= size[axis];
    return n;
  }
  TALLY_HOST_DEVICE std::array<std::int64_t, N> row_offsets(std::int64_t row) const { return offsets(row, rank - 1); }
  // The same for single elements, over all axes.
  TALLY_HOST_DEVICE std::array<std::int64_t, N> element_offsets(std::int64_t element) const {
    return offsets(element, rank);
  }

 private:
  TALLY_HOST_DEVICE std::array<std::int64_t, N> offsets(std::int64_t rest, int axes) const {
    std::array<std::int64_t, N> offset{};
    for (auto axis = static_cast<std::size_t>(axes); axis-- > 0 && rest > 0;) {
      std::int64_t index = rest;
      if (axis > 0) {  // division is the most expensive operation here
        rest /= size[axis];
        index -= rest * size[axis];
      }
      for (std::size_t n = 0; n < N; ++n) offset[n] += index * step[axis][n];
    }
    return offset;
  }
};

// The loop over `shape`. Views of lower rank are aligned at the last axis; axes of size 1 are repeated. Adjacent axes a
// and b are merged if the stride of a is the size of b times the stride of b in every view. The rank is at least 1.
template <class... Views>
Loop<sizeof...(Views)> make_loop(const Shape& shape, const Views&... views) {
  constexpr std::size_t n_views = sizeof...(Views);
  Loop<n_views> loop;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (shape[axis] == 1) continue;
    const auto step_of = [&](const View& view) {
      const int own = axis - (shape.rank - view.shape.rank);
      return own < 0 || view.shape[own] == 1 ? std::int64_t{0} : view.strides[own];
    };
    const std::array<std::int64_t, n_views> step{step_of(views)...};
    bool merges = loop.rank > 0;
    for (std::size_t n = 0; merges && n < n_views; ++n) {
      merges = loop.inner_step()[n] == step[n] * shape[axis];
    }
    if (!merges) ++loop.rank;
    const auto last = static_cast<std::size_t>(loop.rank - 1);
    loop.size[last] = merges ? loop.size[last] * shape[axis] : shape[axis];
    loop.step[last] = step;
  }
  if (loop.rank == 0) {
    loop.rank = 1;
    loop.size[0] = 1;
    loop.step[0].fill(1);
  }
  return loop;
}

}  // namespace tally

// Matrices for tests of matmuls.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "core/view.hpp"

namespace tally::testing {

enum class Order { rows, columns };

// [batch, rows, columns] of random numbers in [-1, 1), with `pad` NaN after each row.
template <class T>
struct Matrices {
  std::vector<T> data;
  View view;

  Matrices(unsigned seed, std::int64_t batch, std::int64_t rows, std::int64_t columns, Order order = Order::rows,
           std::int64_t pad = 0) {
    const bool transposed = order == Order::columns;
    const std::int64_t stored_rows = transposed ? columns : rows;
    const std::int64_t stored_columns = transposed ? rows : columns;
    const std::int64_t row_stride = stored_columns + pad;
    const std::int64_t matrix_stride = stored_rows * row_stride;
    data.reserve(1);  // an address, even without elements
    data.assign(static_cast<std::size_t>(batch * matrix_stride), std::numeric_limits<T>::quiet_NaN());
    view = {data.data(), dtype_of<T>, {batch, rows, columns}, {{matrix_stride, row_stride, 1}}};
    if (transposed) std::swap(view.strides[1], view.strides[2]);
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    for (std::int64_t matrix = 0; matrix < batch; ++matrix) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) at(matrix, i, j) = static_cast<T>(uniform(generator));
      }
    }
  }
  Matrices(const Matrices& other) : data(other.data), view(other.view) { view.data = data.data(); }
  Matrices& operator=(const Matrices&) = delete;
  T& at(std::int64_t matrix, std::int64_t i, std::int64_t j) {
    return data[static_cast<std::size_t>(matrix * view.strides[0] + i * view.strides[1] + j * view.strides[2])];
  }
};

// n numbers as a bias.
template <class T>
View bias_of(std::vector<T>& data, std::int64_t n) {
  return {data.data(), dtype_of<T>, {n}, {{1}}};
}

}  // namespace tally::testing

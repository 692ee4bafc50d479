// The matmuls that are measured: the shapes of a small transformer, and squares.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"

namespace tally::bench {

struct Case {
  const char* name;
  int batch, m, n, k;
  bool transpose_a, transpose_b;
  double flops() const { return 2.0 * batch * m * n * k; }
};

inline constexpr Case cases[] = {
    {"linear 256 -> 256", 1, 8192, 256, 256, false, true},
    {"  its d_x", 1, 8192, 256, 256, false, false},
    {"  its d_w", 1, 256, 256, 8192, true, false},
    {"linear 256 -> 1024", 1, 8192, 1024, 256, false, true},
    {"  its d_x", 1, 8192, 256, 1024, false, false},
    {"  its d_w", 1, 1024, 256, 8192, true, false},
    {"linear 1024 -> 256", 1, 8192, 256, 1024, false, true},
    {"  its d_x", 1, 8192, 1024, 256, false, false},
    {"  its d_w", 1, 256, 1024, 8192, true, false},
    {"attention q k^T", 64, 512, 512, 64, false, true},
    {"  its d_q", 64, 512, 64, 512, false, false},
    {"  its d_k", 64, 512, 64, 512, true, false},
    {"attention a v", 64, 512, 64, 512, false, false},
    {"  its d_a", 64, 512, 512, 64, false, true},
    {"  its d_v", 64, 512, 64, 512, true, false},
    {"square 512", 1, 512, 512, 512, false, false},
    {"square 1024", 1, 1024, 1024, 1024, false, false},
    {"square 2048", 1, 2048, 2048, 2048, false, false},
};

template <class T>
struct Data {
  explicit Data(const Case& shape)
      : a(static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.m) *
          static_cast<std::size_t>(shape.k)),
        b(static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.k) *
          static_cast<std::size_t>(shape.n)),
        c(static_cast<std::size_t>(shape.batch) * static_cast<std::size_t>(shape.m) *
          static_cast<std::size_t>(shape.n)) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(i % 251) / 251;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(i % 241) / 241;
  }
  std::vector<T> a, b, c;
};

// Seconds of the program's processor time instead of the clock's: for one thread on a machine that others use too.
inline bool processor_time = false;

inline double seconds_now() {
  timespec now{};
  clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// GFLOP/s of f, which is called until 40 ms have passed. During the pause all spinning threads go to sleep.
template <class F>
double rate(const Case& shape, F&& f) {
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  f();
  int calls = 0;
  double seconds = 0;
  for (const double begin = seconds_now(); seconds < 0.04; ++calls) {
    f();
    seconds = seconds_now() - begin;
  }
  return 1e-9 * shape.flops() * calls / seconds;
}

template <class T>
View matrices(std::vector<T>& data, int batch, int rows, int columns, bool transposed) {
  View view{data.data(), dtype_of<T>, {batch, rows, columns}, {}};
  view.strides[0] = std::int64_t{rows} * columns;
  view.strides[1] = transposed ? 1 : columns;
  view.strides[2] = transposed ? rows : 1;
  return view;
}

template <class T>
double our_rate(const Case& shape) {
  Data<T> data(shape);
  const View a = matrices(data.a, shape.batch, shape.m, shape.k, shape.transpose_a);
  const View b = matrices(data.b, shape.batch, shape.k, shape.n, shape.transpose_b);
  const View c = matrices(data.c, shape.batch, shape.m, shape.n, false);
  const Workspace workspace(cpu::matmul_workspace(c, a), {});
  return rate(shape, [&] { cpu::matmul(c, a, b, {}, workspace.data()); });
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace tally::bench

// Tally's matmuls in f32 compared with OpenBLAS's own threads, and in bf16 compared with f32, on the shapes of a small
// transformer and on squares:
//   gemm_bench [--threads N] [--rounds N] [--f64] [--processor-time]
// Each round times all, one after the other. Printed are medians over the rounds; ratios are taken within a round,
// because a shared machine changes its speed. OpenBLAS uses the kernels that tally selects. --f64: f64 instead of f32
// and bf16. --processor-time: with one thread, on a machine that others use too.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/matmul/matmul.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/kernels.hpp"
#include "core/device/workspace.hpp"
#include "core/error.hpp"

namespace tally {
namespace {

struct Case {
  const char* name;
  int batch, m, n, k;
  bool transpose_a, transpose_b;
  double flops() const { return 2.0 * batch * m * n * k; }
};

constexpr Case cases[] = {
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

int threads = thread_count();
clockid_t timer = CLOCK_MONOTONIC;

double seconds_now() {
  timespec now{};
  clock_gettime(timer, &now);
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
std::vector<T> numbers(int batch, int rows, int columns, std::size_t period) {
  std::vector<T> data(static_cast<std::size_t>(batch) * static_cast<std::size_t>(rows) *
                      static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<T>(i % period) / static_cast<T>(period);
  return data;
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
using Gemm = void (*)(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);

// The library that tally has loaded. tally calls it with one thread from each of its own.
class OpenBlas {
 public:
  OpenBlas() : library_(dlopen(blas_info().path.c_str(), RTLD_NOW)) {
    check(library_ != nullptr, "bench", "{}", dlerror());
    set_threads_ = reinterpret_cast<void (*)(int)>(dlsym(library_, "openblas_set_num_threads"));
  }

  template <class T>
  double rate_of(const Case& shape, const std::vector<T>& a, const std::vector<T>& b, std::vector<T>& c) const {
    const auto gemm = reinterpret_cast<Gemm<T>>(dlsym(library_, sizeof(T) == 8 ? "cblas_dgemm" : "cblas_sgemm"));
    const std::ptrdiff_t step_a = std::ptrdiff_t{shape.m} * shape.k, step_b = std::ptrdiff_t{shape.k} * shape.n,
                         step_c = std::ptrdiff_t{shape.m} * shape.n;
    constexpr int row_major = 101, plain = 111, transposed = 112;
    set_threads_(threads);
    const double found = rate(shape, [&] {
      for (int i = 0; i < shape.batch; ++i) {
        gemm(row_major, shape.transpose_a ? transposed : plain, shape.transpose_b ? transposed : plain, shape.m,
             shape.n, shape.k, 1, a.data() + i * step_a, shape.transpose_a ? shape.m : shape.k, b.data() + i * step_b,
             shape.transpose_b ? shape.k : shape.n, 0, c.data() + i * step_c, shape.n);
      }
    });
    set_threads_(1);
    return found;
  }

 private:
  void* library_;
  void (*set_threads_)(int);
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class T>
void measure(const Case& shape, const OpenBlas& openblas, int rounds) {
  std::vector<T> a_data = numbers<T>(shape.batch, shape.m, shape.k, 251),
                 b_data = numbers<T>(shape.batch, shape.k, shape.n, 241),
                 c_data = numbers<T>(shape.batch, shape.m, shape.n, 1);
  const View a = matrices(a_data, shape.batch, shape.m, shape.k, shape.transpose_a),
             b = matrices(b_data, shape.batch, shape.k, shape.n, shape.transpose_b),
             c = matrices(c_data, shape.batch, shape.m, shape.n, false);
  const cpu::Microkernel* const bf16 = &cpu::bf16_microkernel();
  const Workspace workspace(cpu::matmul_workspace(c, a), {}),
      workspace_bf16(sizeof(T) == 4 ? cpu::matmul_workspace_by(bf16, c, a) : 0, {});
  std::vector<double> ours, theirs, ratios, in_bf16, ratios_bf16;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(rate(shape, [&] { cpu::matmul(c, a, b, {}, workspace.data()); }));
    theirs.push_back(openblas.rate_of(shape, a_data, b_data, c_data));
    ratios.push_back(ours.back() / theirs.back());
    if (sizeof(T) == 8) continue;
    in_bf16.push_back(rate(shape, [&] { cpu::matmul_by(bf16, c, a, b, {}, workspace_bf16.data()); }));
    ratios_bf16.push_back(in_bf16.back() / ours.back());
  }
  std::printf("%-20s %5d %5d %5d %5d %c%c %8.1f %8.1f   %5.3f", shape.name, shape.batch, shape.m, shape.n, shape.k,
              shape.transpose_a ? 't' : 'n', shape.transpose_b ? 't' : 'n', median(ours), median(theirs),
              median(ratios));
  if (!in_bf16.empty()) std::printf(" %8.1f  %6.2f", median(in_bf16), median(ratios_bf16));
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  using namespace tally;
  int rounds = 9;
  bool f64 = false;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--f64") == 0) {
      f64 = true;
    } else if (std::strcmp(argv[i], "--processor-time") == 0) {
      timer = CLOCK_PROCESS_CPUTIME_ID;
    } else if (std::strcmp(argv[i], "--threads") == 0 && has_value) {
      threads = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--rounds") == 0 && has_value) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: gemm_bench [--threads N] [--rounds N] [--f64] [--processor-time]\n");
      return 2;
    }
  }
  try {
    set_thread_count(threads);
    const OpenBlas openblas;
    const Bf16Instructions bf16 = bf16_instructions();
    std::printf("OpenBLAS %s\n  kernels %s; bf16 by %s; %d threads, %d rounds\n\n", blas_info().path.c_str(),
                blas_info().core.c_str(), bf16.name.c_str(), threads, rounds);
    std::printf("%-20s %5s %5s %5s %5s    %8s %8s   ratio%s\n", "GFLOP/s", "batch", "M", "N", "K", f64 ? "f64" : "f32",
                "OpenBLAS", f64 ? "" : "     bf16  of f32");
    for (const Case& shape : cases) {
      f64 ? measure<double>(shape, openblas, rounds) : measure<float>(shape, openblas, rounds);
    }
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "gemm_bench: %s\n", error.what());
    return 1;
  }
}

// Tally's matmuls compared with OpenBLAS's, which has its own threads, on the shapes of a small transformer and on
// squares:
//   gemm_bench [--threads N] [--rounds N] [--f64] [--openblas PATH of a threaded libopenblas.so.0]
// Each round times both, one after the other. Printed are medians over the rounds; ratios are taken within a round,
// because a shared machine changes its speed. OpenBLAS runs in a child process, because its threads and ours would wait
// for each other's cores. It must also read OPENBLAS_CORETYPE, which gives it the kernels that tally uses.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/parallel.hpp"
#include "tests/bench/gemm_cases.hpp"

namespace {

using namespace tally::bench;

template <class T>
using Gemm = void (*)(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);

template <class T>
double openblas_rate(const Case& shape, Gemm<T> gemm) {
  Data<T> data(shape);
  const std::ptrdiff_t step_a = std::ptrdiff_t{shape.m} * shape.k, step_b = std::ptrdiff_t{shape.k} * shape.n,
                       step_c = std::ptrdiff_t{shape.m} * shape.n;
  return rate(shape, [&] {
    for (int i = 0; i < shape.batch; ++i) {
      gemm(101, shape.transpose_a ? 112 : 111, shape.transpose_b ? 112 : 111, shape.m, shape.n, shape.k, 1,
           data.a.data() + i * step_a, shape.transpose_a ? shape.m : shape.k, data.b.data() + i * step_b,
           shape.transpose_b ? shape.k : shape.n, 0, data.c.data() + i * step_c, shape.n);
    }
  });
}

// The child: answers the number of a case with the rate, line by line, until the input ends.
int serve(const char* path, bool f64) {
  void* const library = dlopen(path, RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "gemm_bench: %s\n", dlerror());
    return 1;
  }
  const auto gemm_f32 = reinterpret_cast<Gemm<float>>(dlsym(library, "cblas_sgemm"));
  const auto gemm_f64 = reinterpret_cast<Gemm<double>>(dlsym(library, "cblas_dgemm"));
  const auto core = reinterpret_cast<const char* (*)()>(dlsym(library, "openblas_get_corename"));
  std::printf("%s\n", core());
  std::fflush(stdout);
  for (std::size_t index = 0; std::scanf("%zu", &index) == 1;) {
    const Case& shape = cases[index];
    std::printf("%.3f\n", f64 ? openblas_rate(shape, gemm_f64) : openblas_rate(shape, gemm_f32));
    std::fflush(stdout);
  }
  return 0;
}

class Child {
 public:
  Child(const std::string& path, const std::string& core, int threads, bool f64) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) throw std::runtime_error("no pipe");
    process_ = fork();
    if (process_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      close(to[1]);
      close(from[0]);
      setenv("OPENBLAS_CORETYPE", core.c_str(), 1);
      setenv("OPENBLAS_NUM_THREADS", std::to_string(threads).c_str(), 1);
      execl("/proc/self/exe", "gemm_bench", "--serve", path.c_str(), f64 ? "--f64" : nullptr, nullptr);
      _exit(1);
    }
    close(to[0]);
    close(from[1]);
    requests_ = fdopen(to[1], "w");
    answers_ = fdopen(from[0], "r");
    char name[64] = "";
    if (std::fscanf(answers_, "%63s", name) != 1) throw std::runtime_error("the process with OpenBLAS did not start");
    core_ = name;
  }
  ~Child() {
    std::fclose(requests_);
    std::fclose(answers_);
    waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& core() const { return core_; }
  double rate(std::size_t index) {
    std::fprintf(requests_, "%zu\n", index);
    std::fflush(requests_);
    double value = 0;
    if (std::fscanf(answers_, "%lf", &value) != 1) throw std::runtime_error("the process with OpenBLAS ended");
    return value;
  }

 private:
  pid_t process_;
  std::FILE* requests_;
  std::FILE* answers_;
  std::string core_;
};

int run(const std::string& path, int threads, int rounds, bool f64) {
  tally::set_thread_count(threads);
  const tally::BlasInfo info = tally::blas_info();
  Child openblas(path, info.core, threads, f64);
  std::printf("tally:    %s\n          kernels %s\nOpenBLAS: %s\n          kernels %s\n%s, %d threads, %d rounds\n\n",
              info.path.c_str(), info.core.c_str(), path.c_str(), openblas.core().c_str(), f64 ? "f64" : "f32", threads,
              rounds);
  std::printf("%-20s %5s %5s %5s %5s    %8s %8s   ratio\n", "GFLOP/s", "batch", "M", "N", "K", "tally", "OpenBLAS");
  for (std::size_t index = 0; index < std::size(cases); ++index) {
    const Case& shape = cases[index];
    std::vector<double> ours, theirs, ratios;
    for (int round = 0; round < rounds; ++round) {
      ours.push_back(f64 ? our_rate<double>(shape) : our_rate<float>(shape));
      theirs.push_back(openblas.rate(index));
      ratios.push_back(ours.back() / theirs.back());
    }
    std::printf("%-20s %5d %5d %5d %5d %c%c %8.1f %8.1f   %5.3f\n", shape.name, shape.batch, shape.m, shape.n, shape.k,
                shape.transpose_a ? 't' : 'n', shape.transpose_b ? 't' : 'n', median(ours), median(theirs),
                median(ratios));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path = "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0";
  const char* serve_path = nullptr;
  int threads = tally::thread_count(), rounds = 9;
  bool f64 = false;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--f64") == 0) {
      f64 = true;
    } else if (std::strcmp(argv[i], "--serve") == 0 && has_value) {
      serve_path = argv[++i];
    } else if (std::strcmp(argv[i], "--openblas") == 0 && has_value) {
      path = argv[++i];
    } else if (std::strcmp(argv[i], "--threads") == 0 && has_value) {
      threads = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--rounds") == 0 && has_value) {
      rounds = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: gemm_bench [--threads N] [--rounds N] [--f64] [--openblas PATH]\n");
      return 2;
    }
  }
  try {
    return serve_path != nullptr ? serve(serve_path, f64) : run(path, threads, std::max(1, rounds), f64);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gemm_bench: %s\n", error.what());
    return 1;
  }
}

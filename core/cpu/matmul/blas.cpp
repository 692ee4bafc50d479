#include "core/cpu/matmul/blas.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <tuple>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/cpu/parallel.hpp"
#include "core/error.hpp"

namespace tally {

namespace {

#if defined(__x86_64__)
int cpu_family() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned base = (a >> 8) & 15;
  return static_cast<int>(base == 15 ? base + ((a >> 20) & 255) : base);
}

// The fastest kernels for this processor, or null to keep the library's own choice. The choice by family and features
// follows these measurements (GFLOP/s a core, f32, OpenBLAS 0.3.21), never a timing: bits must not depend on noise.
//                          SkylakeX  Cooperlake  Haswell   Zen   its own choice
//   AMD family 26, Zen 5     256        256        132     131   Cooperlake
//   AMD family 25, Zen 4       -        104        110       -   Cooperlake
//   Intel with AVX-512       155          -          -       -   Prescott (31) on models newer than the library
const char* best_kernels() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  const bool halved_avx512 = __builtin_cpu_is("amd") && cpu_family() < 26;
  if (avx512 && !halved_avx512) return "SkylakeX";
  return avx2 ? "Haswell" : nullptr;
}
#else
const char* best_kernels() { return nullptr; }
#endif

// Sets an environment variable for as long as it lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ~ScopedVariable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

enum CblasOrder { row_major = 101 };
enum CblasTranspose { as_is = 111, transposed = 112 };

template <class T>
using Gemm = void (*)(CblasOrder, CblasTranspose, CblasTranspose, int, int, int, T, const T*, int, const T*, int, T, T*,
                      int);

template <class T>
using Gemv = void (*)(CblasOrder, CblasTranspose, int, int, T, const T*, int, const T*, int, T, T*, int);

template <class T>
struct Products {
  Gemm<T> gemm = nullptr;
  Gemv<T> gemv = nullptr;
};

struct Library {
  std::tuple<Products<float>, Products<double>> products;
  BlasInfo info;
};

template <class F>
bool find_symbol(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  return function != nullptr;
}

// Empty if the file is missing, is no OpenBLAS or may be called by one thread only; why is then added to tried.
std::optional<Library> open_library(const std::string& path, std::string& tried) {
  int flags = RTLD_NOW | RTLD_LOCAL;
#ifndef TALLY_SANITIZED
  // If the program has loaded another OpenBLAS, this one would otherwise take its functions and kernels from there.
  flags |= RTLD_DEEPBIND;
#endif
  void* handle = dlopen(path.c_str(), flags);
  if (handle == nullptr) {
    tried += formatted("\n  {}", dlerror());
    return std::nullopt;
  }
  Library library;
  const char* (*config)() = nullptr;
  const char* (*core)() = nullptr;
  auto& [f32, f64] = library.products;
  if (!find_symbol(handle, "cblas_sgemm", f32.gemm) || !find_symbol(handle, "cblas_dgemm", f64.gemm) ||
      !find_symbol(handle, "cblas_sgemv", f32.gemv) || !find_symbol(handle, "cblas_dgemv", f64.gemv) ||
      !find_symbol(handle, "openblas_get_config", config) || !find_symbol(handle, "openblas_get_corename", core)) {
    tried += formatted("\n  {}: not an OpenBLAS", path);
    dlclose(handle);
    return std::nullopt;
  }
  if (void (*set_threads)(int) = nullptr; find_symbol(handle, "openblas_set_num_threads", set_threads)) {
    thread_count();  // reads OpenMP's setting, which an OpenMP build of OpenBLAS is about to change
    set_threads(1);
  }
  Dl_info file{};
  dladdr(reinterpret_cast<void*>(f32.gemm), &file);
  library.info = {file.dli_fname ? file.dli_fname : path, config(), core()};
  // Two threads in a build without threads can be handed the same buffer, and then both results are wrong (2 to 10 of
  // 100 products).
  if (library.info.config.find("SINGLE_THREADED") != std::string::npos) {
    tried += formatted("\n  {}: built without threads, so it has no locks", path);
    dlclose(handle);
    return std::nullopt;
  }
  return library;
}

Library find_library() {
  std::optional<ScopedVariable> core_type;
  if (const char* best = best_kernels(); best != nullptr && std::getenv("OPENBLAS_CORETYPE") == nullptr) {
    core_type.emplace("OPENBLAS_CORETYPE", best);
  }
  const ScopedVariable no_threads_of_its_own("OPENBLAS_NUM_THREADS", "1");

  std::vector<std::string> paths;
  if (const char* path = std::getenv("TALLY_BLAS")) {
    paths = {path};
  } else {
#ifdef TALLY_OPENBLAS_PATH
    paths.push_back(TALLY_OPENBLAS_PATH);
#endif
#if defined(__x86_64__)
    const std::string folder = "/usr/lib/x86_64-linux-gnu";
#elif defined(__aarch64__)
    const std::string folder = "/usr/lib/aarch64-linux-gnu";
#else
    const std::string folder = "/usr/lib";
#endif
    paths.push_back(folder + "/openblas-pthread/libopenblas.so.0");
    paths.push_back("libopenblas.so.0");
  }
  std::string tried;
  for (const std::string& path : paths) {
    if (const std::optional<Library> library = open_library(path, tried)) return *library;
  }
  fail("blas",
       "no OpenBLAS found; install Debian's package libopenblas0-pthread, or set TALLY_BLAS to the path of a "
       "libopenblas.so.0. Tried:{}",
       tried);
}

const Library& library() {
  static const Library loaded = find_library();
  return loaded;
}

}  // namespace

BlasInfo blas_info() { return library().info; }

namespace cpu {

void load_blas() { library(); }

// A single row goes another way, which reads b once: gemm would first copy it into its own order, and that takes
// several times as long as the product.
template <class T>
void gemm_tile(bool transpose_a, bool transpose_b, int m, int n, int k, T alpha, const T* a, int ld_a, const T* b,
               int ld_b, T beta, T* c, int ld_c) {
  const Products<T>& of = std::get<Products<T>>(library().products);
  if (m == 1) {
    return of.gemv(row_major, transpose_b ? as_is : transposed, transpose_b ? n : k, transpose_b ? k : n, alpha, b,
                   ld_b, a, transpose_a ? ld_a : 1, beta, c, 1);
  }
  of.gemm(row_major, transpose_a ? transposed : as_is, transpose_b ? transposed : as_is, m, n, k, alpha, a, ld_a, b,
          ld_b, beta, c, ld_c);
}

template void gemm_tile(bool, bool, int, int, int, float, const float*, int, const float*, int, float, float*, int);
template void gemm_tile(bool, bool, int, int, int, double, const double*, int, const double*, int, double, double*,
                        int);

}  // namespace cpu
}  // namespace tally

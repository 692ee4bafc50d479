// tally info: what this build and this machine compute with.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <thread>
#include <utility>

#include "core/backend.hpp"
#include "core/cpu/blas.hpp"
#include "core/cpu/parallel.hpp"
#include "core/io/json.hpp"
#include "core/version.hpp"
#include "tasks/estimate.hpp"
#include "tasks/machine.hpp"
#include "tasks/runner/commands.hpp"

namespace tally {
namespace {

// Which clone of the CPU kernels runs (core/cpu/parallel.hpp).
std::string kernels_text() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TALLY_SANITIZED)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd")) {
    return "x86-64-v4 (AVX-512)";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "x86-64-v3 (AVX2)";
#endif
  return "baseline";
}

int run_info(const CommonOptions& common) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"version", std::string(version)},
      {"device", common.device},
      {"processor", processor_text()},
      {"cores", to_text(static_cast<std::int64_t>(std::thread::hardware_concurrency()))},
      {"threads", to_text(static_cast<std::int64_t>(thread_count()))},
      {"memory", concat(bytes_text(available_memory()), " available")},
      {"kernels", kernels_text()},
      {"compiler", compiler_text()}};
  if (default_device().type == DeviceType::cuda) {
    const Backend& gpu = backend(default_device());
    facts.emplace_back("gpu", gpu.name());
    facts.emplace_back("gpu_memory", concat(bytes_text(gpu.available()), " available"));
  }
  std::string problem;
  try {
    const BlasInfo blas = blas_info();
    facts.emplace_back("blas", blas.path);
    facts.emplace_back("blas_version", blas.config);
    facts.emplace_back("blas_kernels", blas.core);
  } catch (const Error& error) {
    facts.emplace_back("blas", "none");
    problem = error.what();
  }
  JsonValue json = JsonValue::object();
  for (const auto& [name, value] : facts) {
    json.set(name, value);
    if (!common.json) std::cout << concat(name, std::string(14 - name.size(), ' '), value, "\n");
  }
  if (common.json) std::cout << write_json(json) << "\n";
  check(problem.empty(), "info", problem);
  return exit_code::done;
}

}  // namespace

std::function<int()> declare_info(CLI::App&, CommonOptions& common, const std::vector<std::string>&) {
  return [&common] { return run_info(common); };
}

}  // namespace tally

// tally info: the device, kernels and instruction sets of this build on this machine.
#include <thread>

#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/matmul/microkernel.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/version.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/command.hpp"
#include "tasks/runs/machine.hpp"

namespace tally {
namespace {

// The active clone of the CPU kernels (core/cpu/parallel.hpp).
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

// The instruction set used for bf16 matmuls, and why not a faster one.
std::string bf16_text() {
  const Bf16Instructions found = bf16_instructions();
  return found.why_not_more.empty() ? found.name : formatted("{} ({})", found.name, found.why_not_more);
}

Result run_info(const CommonOptions& common) {
  Result result{.value = JsonValue::object({{"version", std::string(version)},
                                            {"commit", commit},
                                            {"device", common.device},
                                            {"processor", processor_text()},
                                            {"cores", std::thread::hardware_concurrency()},
                                            {"threads", thread_count()},
                                            {"memory", formatted("{} available", bytes_text(available_memory()))},
                                            {"kernels", kernels_text()},
                                            {"bf16_products", bf16_text()},
                                            {"compiler", compiler_text()}})};
  if (default_device().type == DeviceType::cuda) {
    const Backend& gpu = backend(default_device());
    result.value.set("gpu", gpu.name());
    result.value.set("gpu_memory", formatted("{} available", bytes_text(gpu.available())));
  }
  try {
    const BlasInfo blas = blas_info();
    result.value.set("blas", blas.path);
    result.value.set("blas_version", blas.config);
    result.value.set("blas_kernels", blas.core);
  } catch (const Error& error) {
    result.value.set("blas", "none");
    complain(formatted("[info] {}", error.what()));
    result.code = exit_code::failed;
  }
  return result;
}

}  // namespace

std::function<Result()> declare_info(CommandLine& line) {
  return [&common = line.common] { return run_info(common); };
}

}  // namespace tally

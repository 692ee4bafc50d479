#include "tasks/runner/machine.hpp"

#include <fstream>
#include <thread>

#include "core/backend.hpp"
#include "core/cpu/blas.hpp"
#include "core/cpu/parallel.hpp"
#include "core/error.hpp"
#include "core/precision.hpp"
#include "core/tensor.hpp"
#include "core/version.hpp"

namespace tally {

std::string processor_text() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string compiler_text() {
#if defined(__clang__)
  return concat("clang ", __clang_version__);
#else
  return concat("g++ ", __VERSION__);
#endif
}

namespace {

std::string products_text() {
  return std::string(product_precision_names[static_cast<std::size_t>(product_precision())]);
}

}  // namespace

JsonValue machine_json() {
  return JsonValue::object({{"device", to_text(default_device())},
                            {"device_name", backend(default_device()).name()},
                            {"products", products_text()},
                            {"processor", processor_text()},
                            {"cores", std::thread::hardware_concurrency()},
                            {"threads", thread_count()},
                            {"blas", blas_info().core},
                            {"compiler", compiler_text()},
                            {"version", std::string(version)}});
}

std::string machine_text() {
  const Device device = default_device();
  std::string on;
  if (device != Device{}) {
    on = concat(to_text(device), " (", backend(device).name(), "), products ", products_text(), "; ");
  }
  return concat(on, processor_text(), ", ", std::thread::hardware_concurrency(), " cores, ", thread_count(),
                thread_count() == 1 ? " thread" : " threads", ", BLAS kernels ", blas_info().core, ", ",
                compiler_text());
}

}  // namespace tally

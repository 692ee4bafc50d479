#include "tasks/runs/machine.hpp"

#include <fstream>
#include <thread>
#include <type_traits>

#include "core/cpu/matmul/blas.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/error.hpp"
#include "core/precision.hpp"
#include "core/tensor.hpp"
#include "core/version.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

// f(name, member) for every member.
template <class M, class F>
void visit_members(M& machine, F&& f) {
  f("device", machine.device);
  f("device_name", machine.device_name);
  f("precision", machine.precision);
  f("processor", machine.processor);
  f("cores", machine.cores);
  f("threads", machine.threads);
  f("blas", machine.blas);
  f("compiler", machine.compiler);
  f("version", machine.version);
  f("commit", machine.commit);
}

}  // namespace

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
  return formatted("clang {}", __clang_version__);
#else
  return formatted("g++ {}", __VERSION__);
#endif
}

Machine Machine::here() {
  return {to_text(default_device()),
          backend(default_device()).name(),
          std::string(matmul_precision_names[static_cast<std::size_t>(matmul_precision())]),
          processor_text(),
          static_cast<std::int64_t>(std::thread::hardware_concurrency()),
          thread_count(),
          blas_info().core,
          compiler_text(),
          std::string(tally::version),
          std::string(tally::commit)};
}

Machine Machine::from_json(const JsonValue& json) {
  Machine machine;
  visit_members(machine, [&](std::string_view name, auto& member) {
    if (!json.contains(name)) return;
    if constexpr (std::is_same_v<decltype(member), std::string&>) {
      member = json.string(name);
    } else {
      member = json.integer(name);
    }
  });
  return machine;
}

JsonValue Machine::to_json() const {
  JsonValue json = JsonValue::object();
  visit_members(*this, [&](std::string_view name, const auto& member) { json.set(name, member); });
  return json;
}

std::string Machine::text() const {
  const bool on_cpu = device == to_text(Device{});
  const std::string on = !on_cpu              ? formatted("{} ({}), precision {}; ", device, device_name, precision)
                         : precision == "f32" ? ""
                                              : formatted("precision {}; ", precision);
  return formatted("{}{}, {} cores, {}, BLAS kernels {}, {}, tally {}{}", on, processor, cores,
                   plural(threads, "thread"), blas, compiler, version,
                   commit.empty() ? "" : formatted(" ({})", commit));
}

}  // namespace tally

// The options of all commands, declared once: for the command line, for child processes, and for the library.
#include <algorithm>

#include "autograd/finite.hpp"
#include "core/cpu/parallel.hpp"
#include "core/device/backend.hpp"
#include "core/device/device.hpp"
#include "core/device/kernels.hpp"
#include "core/distributed/mpi.hpp"
#include "core/distributed/process_group.hpp"
#include "core/precision.hpp"
#include "nn/options.hpp"
#include "tasks/command_line/command.hpp"

namespace tally {

std::vector<Option> CommonOptions::options() {
  const std::vector<std::string> precisions(matmul_precision_names.begin(), matmul_precision_names.end());
  const Rules rules{.group = "Common"};
  return {{"--threads",
           &threads,
           "threads to compute with; 0: all cores. Results are the same bits",
           {.group = "Common", .least = 0, .most = 4096}},
          {"--device", &device, "cpu, cuda, cuda:1, or cuda-host: the CUDA kernels executed on the CPU", rules},
          {"--precision",
           &precision,
           "what matrix products of f32 round their operands to (core/precision.md); tf32, of CUDA devices, and bf16 "
           "are faster",
           {.group = "Common", .allowed = precisions}},
          {"--debug-nan", &debug_nan, "name the operation whose result is not finite; slower", rules},
          {"--quiet", &quiet, "print results only", rules},
          {"--json", &json, "", rules}};
}

std::vector<std::string> CommonOptions::words() {
  std::vector<std::string> words;
  for (const Option& option : options()) {
    if (bool* const* flag = std::get_if<bool*>(&option.target)) {
      if (**flag) words.push_back(option.names);
    } else if (std::int64_t* const* number = std::get_if<std::int64_t*>(&option.target)) {
      words.push_back(formatted("{}={}", option.names, **number));
    } else {
      words.push_back(formatted("{}={}", option.names, *std::get<std::string*>(option.target)));
    }
  }
  return words;
}

void CommonOptions::apply() const {
  Device wanted = as_usage([&] { return device_from_text(device); });
  if (wanted.type == DeviceType::cuda && !ProcessGroup::world().alone()) {
    if (wanted.index != 0) {
      throw UsageError(
          formatted("[mpi] --device {} is one GPU; of several processes each takes the one of its number on its "
                    "machine: --device cuda",
                    device));
    }
    wanted.index = static_cast<int>(mpi::own_rank_on_machine());
  }
  kernels(wanted);  // an unbuilt backend is refused before any work starts
  if (precision == "tf32" && wanted.type == DeviceType::cpu) {
    throw UsageError("--precision tf32 is for --device cuda and cuda-host; the CPU's products are f32 or bf16");
  }
  const auto found = std::ranges::find(matmul_precision_names, precision);
  set_matmul_precision(static_cast<MatmulPrecision>(found - matmul_precision_names.begin()));
  set_default_device(wanted);
  set_finite_checks(debug_nan);
  if (threads > 0) set_thread_count(static_cast<int>(threads));
}

}  // namespace tally

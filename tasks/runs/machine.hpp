// The hardware and software of a run. Speed depends on it; between devices and precisions, so do the last bits of
// results.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/json.hpp"

namespace tally {

// The commit of the sources, with "-dirty" if they were changed since; empty for sources outside git.
extern const std::string_view commit;

// "AMD EPYC 9R14": the model name that the system reports.
std::string processor_text();
// "g++ 12.2.0".
std::string compiler_text();

struct Machine {
  std::string device, device_name;  // "cuda:0", "NVIDIA H200"
  std::string precision;            // of matmuls
  std::string processor;
  std::int64_t cores = 0, threads = 0;
  std::string blas;  // OpenBLAS's kernels: "SkylakeX"
  std::string compiler, version, commit;

  // This process's machine, with its default device.
  static Machine here();
  // Missing members keep their values. Throws Error for a member of another kind.
  static Machine from_json(const JsonValue& json);
  JsonValue to_json() const;  // members by their names
  std::string text() const;   // one line

  friend auto operator<=>(const Machine&, const Machine&) = default;
};

}  // namespace tally

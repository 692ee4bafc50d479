// What computes: speed depends on it and, between devices and precisions, the last bits of the numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/json.hpp"

namespace tally {

// The commit of the sources, with "-dirty" where they were changed since; empty for sources outside git.
extern const std::string_view commit;

// "AMD EPYC 9R14": the model as the system tells it.
std::string processor_text();
// "g++ 12.2.0".
std::string compiler_text();

struct Machine {
  std::string device, device_name;  // "cuda:0", "NVIDIA H200"
  std::string precision;            // of matrix products
  std::string processor;
  std::int64_t cores = 0, threads = 0;
  std::string blas;  // which of OpenBLAS's kernels: "SkylakeX"
  std::string compiler, version, commit;

  // That of this process, with its default device.
  static Machine here();
  // Members that are missing stay as they are. Throws Error for one of another kind.
  static Machine from_json(const JsonValue& json);
  JsonValue to_json() const;  // members by their names
  std::string text() const;   // one line

  friend auto operator<=>(const Machine&, const Machine&) = default;
};

}  // namespace tally

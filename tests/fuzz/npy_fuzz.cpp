// Any bytes load as .npy or throw tally::Error.
#include <cstdint>
#include <cstdlib>

#include "core/io/npy.hpp"
#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tally::MemoryFile memory(data, size);
  try {
    const tally::Tensor tensor = tally::read_npy(memory.path());
    const auto bytes = static_cast<std::size_t>(tensor.numel()) * tally::size_of(tensor.dtype());
    if (!tensor.dense() || bytes >= size) std::abort();
  } catch (const tally::Error&) {
  }
  return 0;
}

// Any bytes load as safetensors or throw tally::Error.
#include <cstdint>
#include <cstdlib>

#include "core/io/safetensors.hpp"
#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tally::MemoryFile memory(data, size);
  try {
    const auto file = tally::SafetensorsFile::open(memory.path());
    std::uint64_t bytes = 0;
    for (const auto& entry : file.entries()) {
      bytes += entry.end - entry.begin;
      if (file.find(entry.name) != &entry) std::abort();
      if (entry.dtype && file.read(entry.name).shape() != entry.shape) std::abort();
    }
    if (bytes >= size) std::abort();  // more data than the file has
    tally::verify_checksums(file);
  } catch (const tally::Error&) {
  }
  return 0;
}

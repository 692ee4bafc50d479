// Any bytes are a file of tokens or throw tally::Error; every token that is read is one of the vocabulary.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tasks/text/prepare/token_file.hpp"
#include "tests/fuzz/memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tally::MemoryFile memory(data, size);
  for (const std::int64_t vocabulary : {300, 70'000}) {
    try {
      const tally::TokenFile file(memory.path(), vocabulary);
      if (static_cast<std::size_t>(file.size() * file.element_bytes()) > size) std::abort();
      file.checksum();
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
      file.read(0, tokens);
      for (const std::int32_t token : tokens) {
        if (token < 0 || token >= vocabulary) std::abort();
      }
    } catch (const tally::Error&) {
    }
  }
  return 0;
}

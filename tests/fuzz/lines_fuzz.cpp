// Any bytes are a line of a JSON lines file or throw tally::Error; the text of one that was read is read again from the
// line that holds it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "tasks/text/prepare/corpus.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const std::string text = tally::text_of_line(bytes, "text", "fuzz");
    const std::string line = tally::write_json(tally::JsonValue::object({{"text", text}}));
    if (tally::text_of_line(line, "text", "again") != text) std::abort();
  } catch (const tally::Error&) {
  }
  return 0;
}

// Any bytes parse as JSON or throw tally::Error. A parsed value is written and parses again as the same value. The
// library that reads for us accepts the same texts if it sees all of their bytes, except texts that we refuse on
// purpose.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/io/json.hpp"

namespace {

bool refused_on_purpose(std::string_view message) {
  for (const std::string_view part :
       {"stands here again", "does not fit", "nested deeper", "more than", "a byte order mark", "not UTF-8"}) {
    if (message.find(part) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // It takes a zero byte for the end of the text.
  const bool comparable = text.find('\0') == std::string_view::npos;
  try {
    const tally::JsonValue value = tally::parse_json(text, {}, "fuzz");
    for (const int indent : {0, 2}) {
      if (!(tally::parse_json(tally::write_json(value, indent), {}, "again") == value)) std::abort();
    }
    if (comparable && !nlohmann::json::accept(text)) std::abort();
  } catch (const tally::Error& error) {
    if (comparable && !refused_on_purpose(error.what()) && nlohmann::json::accept(text)) std::abort();
  }
  return 0;
}

// Any bytes are the config.json of a foreign model or throw tally::Error. A valid one becomes a run's configuration, or
// the configuration refuses it.
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "tasks/foreign/foreign_model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const tally::JsonValue json = tally::parse_json(bytes, tally::foreign_config_limits, "fuzz");
    const tally::ForeignDescription description = tally::describe_foreign(json, "fuzz");
    for (const char* pe : {"", "rope+cope", "absolute+cope"}) {
      try {
        tally::config_of(description, pe);
      } catch (const tally::Error&) {
      }
    }
  } catch (const tally::Error&) {
  }
  return 0;
}

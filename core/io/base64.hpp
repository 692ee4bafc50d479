// Base64 with padding (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tally {

std::string to_base64(std::string_view bytes);
// Nothing for a text that to_base64() does not write.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace tally

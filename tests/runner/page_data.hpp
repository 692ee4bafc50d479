// The JSON that a page's script reads.
#pragma once

#include <string>
#include <string_view>

#include "core/io/json.hpp"

namespace tally::testing {

inline JsonValue page_data(const std::string& page) {
  constexpr std::string_view open = R"(<script type="application/json" id="data">)";
  const std::size_t begin = page.find(open) + open.size(), end = page.find("</script>", begin);
  return parse_json(page.substr(begin, end - begin), {}, "page");
}

}  // namespace tally::testing

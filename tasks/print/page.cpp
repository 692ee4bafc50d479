#include "tasks/print/page.hpp"

#include <array>
#include <utility>

#include "core/error.hpp"

namespace tally {
namespace {

using Replacement = std::pair<std::string_view, std::string_view>;

template <std::size_t count>
std::string with_replacements(std::string_view text, const std::array<Replacement, count>& replacements) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    std::size_t taken = 0;
    for (const auto& [from, to] : replacements) {
      if (!text.starts_with(from)) continue;
      result += to;
      taken = from.size();
      break;
    }
    if (taken == 0) result += text[0];
    text.remove_prefix(taken == 0 ? 1 : taken);
  }
  return result;
}

}  // namespace

std::string script_json(const JsonValue& value) {
  static constexpr std::array<Replacement, 3> escapes{
      {{"<", "\\u003c"}, {"\xe2\x80\xa8", "\\u2028"}, {"\xe2\x80\xa9", "\\u2029"}}};
  return with_replacements(write_json(value), escapes);
}

std::string html_text(std::string_view text) {
  static constexpr std::array<Replacement, 5> escapes{
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}}};
  return with_replacements(text, escapes);
}

std::string make_page(std::string_view name, std::string_view title, const JsonValue& data) {
  std::string_view rest = page_source(name);
  check(!rest.empty(), "page", "there is no page '{}'", name);
  std::string page;
  for (std::size_t open = 0; (open = rest.find("{{")) != std::string_view::npos;) {
    const std::size_t close = rest.find("}}", open);
    check(close != std::string_view::npos, "page", "{} has {{{{ without }}}}", name);
    const std::string_view part = rest.substr(open + 2, close - open - 2);
    page += rest.substr(0, open);
    rest.remove_prefix(close + 2);
    if (part == "title") {
      page += html_text(title);
    } else if (part == "data") {
      page += script_json(data);
    } else {
      check(!page_source(part).empty(), "page", "{} asks for '{}', which is not there", name, part);
      page += page_source(part);
    }
  }
  return page += rest;
}

}  // namespace tally

// HTML pages that need nothing else: no network, no server, no library. The sources lie in tasks/pages/ and are part of
// the program; a page has its style, its scripts and its data in it, and may be opened from a file.
#pragma once

#include <string>
#include <string_view>

#include "core/io/json.hpp"

namespace tally {

// A file of tasks/pages/, "style.css"; empty where there is none. Written by the build.
std::string_view page_source(std::string_view name);

// The page tasks/pages/<name>: "{{style.css}}" in it stands for that file, "{{title}}" for the title as text,
// "{{data}}" for script_json(data). Throws Error for a name that is none of these.
std::string make_page(std::string_view name, std::string_view title, const JsonValue& data);

// JSON in one line that may stand in a <script>: nothing in it ends the script, opens a comment, or is a line end to a
// script but not to JSON (U+2028, U+2029).
std::string script_json(const JsonValue& value);

// Text as it stands in HTML, between tags or in a quoted attribute.
std::string html_text(std::string_view text);

}  // namespace tally

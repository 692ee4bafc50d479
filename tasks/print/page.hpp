// Self-contained HTML pages: no network, server or library. The sources are in tasks/pages/ and are compiled into the
// program. A page includes its style, scripts and data, and can be opened from a file.
#pragma once

#include <string>
#include <string_view>

#include "core/io/json.hpp"

namespace tally {

// A file of tasks/pages/, "style.css"; empty for an unknown name. Written by the build.
std::string_view page_source(std::string_view name);

// The page tasks/pages/<name>. "{{style.css}}" is replaced by that file, "{{title}}" by the title as text, and
// "{{data}}" by script_json(data). Throws Error for any other name.
std::string make_page(std::string_view name, std::string_view title, const JsonValue& data);

// JSON on one line that is safe inside a <script>. It cannot end the script or open a comment. It has no U+2028 or
// U+2029, which are line ends to a script but not to JSON.
std::string script_json(const JsonValue& value);

// Text escaped for HTML, between tags or in a quoted attribute.
std::string html_text(std::string_view text);

}  // namespace tally

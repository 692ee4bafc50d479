// Building blocks of pictures: SVG elements as text, colours, the style sheet.
#pragma once

#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "core/error.hpp"

namespace tally::svg {

// Distinguishable with colour blindness (Okabe and Ito 2008), with black replaced by grey.
inline constexpr std::array colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#5f5f5f", "#a5a000"};
inline constexpr std::array dashes{"", "6 3", "2 3", "8 3 2 3"};  // for more lines than colours

constexpr double width = 900;
// Approximate widths of text: font metrics are not available here.
constexpr double character_width = 6.6;

inline std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// A coordinate, rounded to a tenth of a pixel.
inline std::string px(double value) { return number(std::round(10 * value) / 10); }

// "10k" for 10,000, so that tick labels do not overlap.
inline std::string short_count(double value) {
  if (value >= 1e6) return number(value / 1e6) + "M";
  return value >= 1e4 ? number(value / 1e3) + "k" : number(value);
}

inline std::string text_at(double x, double y, const char* anchor, const std::string& attributes,
                           const std::string& text) {
  return concat("<text x=\"", px(x), "\" y=\"", px(y), "\" text-anchor=\"", anchor, "\"", attributes, ">",
                escaped(text), "</text>\n");
}

inline std::string path(const char* style, const std::string& d, const std::string& attributes = "") {
  return concat("<path class=\"", style, "\" d=\"", d, "\"", attributes, "/>\n");
}

inline constexpr const char* style_sheet =
    "<style>text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#444}"
    ".title{font-size:15px;font-weight:600;fill:#111}.panel{font-size:13px;font-weight:600;fill:#222}"
    ".grid{stroke:#e6e6e6;fill:none}.axis{stroke:#777;fill:none}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}</style>\n";

// A picture of this height: title, style sheet, white background, then the drawn elements.
inline std::string document(double height, const std::string& title, const std::string& drawn) {
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", px(width), "\" height=\"", px(height),
                "\" viewBox=\"0 0 ", px(width), " ", px(height), "\" role=\"img\">\n<title>", escaped(title),
                "</title>\n", style_sheet, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", drawn, "</svg>\n");
}

}  // namespace tally::svg

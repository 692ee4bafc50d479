#include "tasks/svg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/error.hpp"

namespace tally {
namespace {

// Told apart by people who do not see all colours too (Okabe and Ito 2008), the black one grey.
constexpr std::array colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5f5f5f", "#a5a000"};
constexpr std::array dashes{"", "6 3", "2 3", "8 3 2 3"};  // beyond the colours

constexpr double width = 900, panel_row_height = 292;
constexpr double left = 66, right = 22, bottom = 46, panel_gap = 34;
constexpr double title_height = 38, legend_row_height = 20, panel_title_height = 24;
constexpr std::size_t panels_in_row = 4;
// Widths of text, roughly: there are no font metrics here.
constexpr double character_width = 6.6, legend_mark = 30, legend_space = 20;

std::string escaped(const std::string& text) {
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

// A coordinate: a tenth of a pixel is as fine as eyes are.
std::string px(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  std::string result = text;
  if (result.ends_with(".0")) result.resize(result.size() - 2);
  return result;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// "10k" for 10,000: tick labels must not run into each other.
std::string short_count(double value) {
  if (value >= 1e6) return number(value / 1e6) + "M";
  if (value >= 1e4) return number(value / 1e3) + "k";
  return number(value);
}

struct Style {
  std::string label, colour, dash;
};

std::vector<Style> styles_of(const Chart& chart) {
  std::vector<Style> styles;
  for (const ChartPanel& panel : chart.panels) {
    for (const ChartSeries& series : panel.series) {
      const bool known =
          std::any_of(styles.begin(), styles.end(), [&](const Style& s) { return s.label == series.label; });
      if (known) continue;
      const std::size_t n = styles.size();
      styles.push_back({series.label, colours[n % colours.size()], dashes[n / colours.size() % dashes.size()]});
    }
  }
  return styles;
}

struct Range {
  double low = 0, high = 0;
};

// All points that can be drawn.
template <class F>
void for_each_point(const ChartPanel& panel, F&& f) {
  for (const ChartSeries& series : panel.series) {
    for (const ChartPoint& point : series.points) {
      if (std::isfinite(point.x) && std::isfinite(point.y)) f(point);
    }
  }
}

// One panel's area and scales.
struct Frame {
  double x0, x1, y0, y1;  // pixels: left, right, top, bottom
  Range x, y;

  double at_x(double value) const { return x0 + (value - x.low) / (x.high - x.low) * (x1 - x0); }
  double at_y(double value) const { return y1 - (value - y.low) / (y.high - y.low) * (y1 - y0); }
};

std::string text_at(double x, double y, const char* anchor, const std::string& attributes, const std::string& text) {
  return concat("<text x=\"", px(x), "\" y=\"", px(y), "\" text-anchor=\"", anchor, "\"", attributes, ">",
                escaped(text), "</text>\n");
}

std::string draw_axes(const Frame& frame, const ChartPanel& panel, const std::vector<double>& x_ticks,
                      const std::vector<double>& y_ticks, bool with_y_labels) {
  std::string svg = text_at((frame.x0 + frame.x1) / 2, frame.y0 - 9, "middle", " class=\"panel\"", panel.title);
  for (const double tick : y_ticks) {
    const std::string y = px(frame.at_y(tick));
    svg += concat("<path class=\"grid\" d=\"M", px(frame.x0), " ", y, "H", px(frame.x1), "\"/>\n");
    if (with_y_labels) {
      svg += text_at(frame.x0 - 8, frame.at_y(tick) + 4, "end", "", number(100 * tick) + "%");
    }
  }
  for (const double tick : x_ticks) {
    if (tick < frame.x.low || tick > frame.x.high) continue;
    svg += concat("<path class=\"axis\" d=\"M", px(frame.at_x(tick)), " ", px(frame.y1), "v5\"/>\n");
    svg += text_at(frame.at_x(tick), frame.y1 + 18, "middle", "", short_count(tick));
  }
  svg += concat("<path class=\"axis\" d=\"M", px(frame.x0), " ", px(frame.y0), "V", px(frame.y1), "H", px(frame.x1),
                "\"/>\n");
  return svg;
}

std::string draw_series(const Frame& frame, const ChartSeries& series, const Style& style) {
  std::vector<ChartPoint> points;
  for (const ChartPoint& point : series.points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) points.push_back(point);
  }
  if (points.empty()) return "";
  std::string svg;
  const bool has_band = std::any_of(points.begin(), points.end(), [](const ChartPoint& p) { return p.low < p.high; });
  if (has_band) {
    std::string path;
    for (const ChartPoint& p : points) {
      path += concat(path.empty() ? "M" : "L", px(frame.at_x(p.x)), " ", px(frame.at_y(p.high)));
    }
    for (auto p = points.rbegin(); p != points.rend(); ++p) {
      path += concat("L", px(frame.at_x(p->x)), " ", px(frame.at_y(p->low)));
    }
    svg += concat("<path d=\"", path, "Z\" fill=\"", style.colour, "\" fill-opacity=\"0.14\"/>\n");
  }
  std::string path;
  for (const ChartPoint& p : points) {
    path += concat(path.empty() ? "M" : "L", px(frame.at_x(p.x)), " ", px(frame.at_y(p.y)));
  }
  const std::string dash = style.dash.empty() ? "" : concat(" stroke-dasharray=\"", style.dash, "\"");
  svg += concat("<path class=\"line\" d=\"", path, "\" stroke=\"", style.colour, "\"", dash, "/>\n");
  constexpr std::size_t most_dots = 30;
  if (points.size() <= most_dots) {
    for (const ChartPoint& p : points) {
      svg += concat("<circle cx=\"", px(frame.at_x(p.x)), "\" cy=\"", px(frame.at_y(p.y)), "\" r=\"2.4\" fill=\"",
                    style.colour, "\"/>\n");
    }
  }
  return svg;
}

// The rows of the legend: labels that fit side by side.
std::vector<std::vector<Style>> legend_rows(const std::vector<Style>& styles) {
  std::vector<std::vector<Style>> rows;
  double used = 0;
  for (const Style& style : styles) {
    const double needed = legend_mark + legend_space + character_width * static_cast<double>(style.label.size());
    if (rows.empty() || used + needed > width - left - right) rows.emplace_back(), used = 0;
    rows.back().push_back(style);
    used += needed;
  }
  return rows;
}

std::string draw_legend(const std::vector<std::vector<Style>>& rows) {
  std::string svg;
  double y = title_height + 8;
  for (const std::vector<Style>& row : rows) {
    double x = left;
    for (const Style& style : row) {
      const std::string dash = style.dash.empty() ? "" : concat(" stroke-dasharray=\"", style.dash, "\"");
      svg +=
          concat("<path class=\"line\" d=\"M", px(x), " ", px(y), "h22\" stroke=\"", style.colour, "\"", dash, "/>\n");
      svg += text_at(x + legend_mark, y + 4, "start", "", style.label);
      x += legend_mark + legend_space + character_width * static_cast<double>(style.label.size());
    }
    y += legend_row_height;
  }
  return svg;
}

constexpr const char* style_sheet =
    "<style>text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#444}"
    ".title{font-size:15px;font-weight:600;fill:#111}.panel{font-size:13px;font-weight:600;fill:#222}"
    ".grid{stroke:#e6e6e6;fill:none}.axis{stroke:#777;fill:none}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}</style>\n";

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    // The small excess keeps a step that is exact but for rounding.
    if (factor * power * (1 + 1e-9) >= rough) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const auto first = static_cast<long>(std::floor(low / step + 1e-9));
  const auto last = static_cast<long>(std::ceil(high / step - 1e-9));
  for (long n = first; n <= last; ++n) ticks.push_back(static_cast<double>(n) * step);
  return ticks;
}

std::string svg_text(const Chart& chart) {
  const std::vector<Style> styles = styles_of(chart);
  const auto legend = legend_rows(styles);
  const std::size_t columns = std::clamp<std::size_t>(chart.panels.size(), 1, panels_in_row);
  const std::size_t rows = std::max<std::size_t>(1, (chart.panels.size() + columns - 1) / columns);
  const double top = title_height + legend_row_height * static_cast<double>(legend.size());
  // 400 with one row of panels and one of the legend.
  const double height = top + panel_row_height * static_cast<double>(rows) + bottom + 4;

  // One y axis for all panels, so that heights compare; it begins at 0.
  double highest = 0;
  for (const ChartPanel& panel : chart.panels) {
    for_each_point(panel, [&](const ChartPoint& p) { highest = std::max({highest, p.y, p.high}); });
  }
  const std::vector<double> y_ticks = axis_ticks(0, highest > 0 ? highest : 0.01, 5);

  std::string svg = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", px(width), "\" height=\"", px(height),
                           "\" viewBox=\"0 0 ", px(width), " ", px(height), "\" role=\"img\">\n<title>",
                           escaped(chart.title), "</title>\n", style_sheet,
                           "<rect width=\"100%\" height=\"100%\" "
                           "fill=\"#fff\"/>\n");
  svg += text_at(left, 26, "start", " class=\"title\"", chart.title);
  svg += draw_legend(legend);

  const double panel_width =
      (width - left - right - panel_gap * static_cast<double>(columns - 1)) / static_cast<double>(columns);
  for (std::size_t n = 0; n < chart.panels.size(); ++n) {
    const ChartPanel& panel = chart.panels[n];
    const std::size_t panels_above = n / columns;
    const auto column = static_cast<double>(n % columns), row = static_cast<double>(panels_above);
    double last_x = 0;
    for_each_point(panel, [&](const ChartPoint& p) { last_x = std::max(last_x, p.x); });
    const Range x_range{0, last_x > 0 ? last_x : 1};
    const double x0 = left + column * (panel_width + panel_gap);
    const double y0 = top + row * panel_row_height + panel_title_height;
    const double y1 = top + (row + 1) * panel_row_height - (row + 1 < static_cast<double>(rows) ? 26 : 0);
    const Frame frame{x0, x0 + panel_width, y0, y1, x_range, {y_ticks.front(), y_ticks.back()}};
    svg += draw_axes(frame, panel, axis_ticks(0, x_range.high, panel_width > 300 ? 6 : 4), y_ticks, n % columns == 0);
    for (const ChartSeries& series : panel.series) {
      const auto style =
          std::find_if(styles.begin(), styles.end(), [&](const Style& s) { return s.label == series.label; });
      svg += draw_series(frame, series, *style);
    }
  }
  const double middle = top + panel_row_height * static_cast<double>(rows) / 2;
  svg += text_at((left + width - right) / 2, height - 12, "middle", "", chart.x_label);
  svg += text_at(18, middle, "middle", concat(" transform=\"rotate(-90 18 ", px(middle), ")\""), chart.y_label);
  return svg + "</svg>\n";
}

}  // namespace tally

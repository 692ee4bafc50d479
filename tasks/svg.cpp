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
constexpr double left = 66, right = 22, bottom = 50, panel_gap = 34;
constexpr double title_height = 38, legend_row_height = 20, panel_title_height = 24, row_gap = 26;
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

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// A coordinate: a tenth of a pixel is as fine as eyes are.
std::string px(double value) { return number(std::round(10 * value) / 10); }

// "10k" for 10,000: tick labels must not run into each other.
std::string short_count(double value) {
  if (value >= 1e6) return number(value / 1e6) + "M";
  return value >= 1e4 ? number(value / 1e3) + "k" : number(value);
}

std::string text_at(double x, double y, const char* anchor, const std::string& attributes, const std::string& text) {
  return concat("<text x=\"", px(x), "\" y=\"", px(y), "\" text-anchor=\"", anchor, "\"", attributes, ">",
                escaped(text), "</text>\n");
}

std::string path(const char* style, const std::string& d, const std::string& attributes = "") {
  return concat("<path class=\"", style, "\" d=\"", d, "\"", attributes, "/>\n");
}

// Colour and dashes of a line, one for each label.
class Styles {
 public:
  explicit Styles(const Chart& chart) {
    for (const ChartPanel& panel : chart.panels) {
      for (const ChartSeries& series : panel.series) {
        if (place(series.label) == labels.size()) labels.push_back(series.label);
      }
    }
  }
  std::string colour(const std::string& label) const { return colours[place(label) % colours.size()]; }
  std::string stroke(const std::string& label) const {
    const std::string dash = dashes[place(label) / colours.size() % dashes.size()];
    return concat(" stroke=\"", colour(label), "\"", dash.empty() ? "" : concat(" stroke-dasharray=\"", dash, "\""));
  }

  std::vector<std::string> labels;  // in the order in which they come

 private:
  std::size_t place(const std::string& label) const {
    return static_cast<std::size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin());
  }
};

// One panel's area in pixels, and what its axes reach; both begin at 0.
struct Frame {
  double x0, x1, y0, y1;  // left, right, top, bottom
  double last_x, last_y;

  double at_x(double value) const { return x0 + value / last_x * (x1 - x0); }
  double at_y(double value) const { return y1 - value / last_y * (y1 - y0); }
  std::string at(double x, double y) const { return concat(px(at_x(x)), " ", px(at_y(y))); }
};

std::string draw_axes(const Frame& frame, const std::string& title, const std::vector<double>& y_ticks,
                      bool with_y_labels) {
  constexpr double wide_panel = 300;
  std::string svg = text_at((frame.x0 + frame.x1) / 2, frame.y0 - 9, "middle", " class=\"panel\"", title);
  for (const double tick : y_ticks) {
    svg += path("grid", concat("M", frame.at(0, tick), "H", px(frame.x1)));
    if (with_y_labels) svg += text_at(frame.x0 - 8, frame.at_y(tick) + 4, "end", "", number(100 * tick) + "%");
  }
  for (const double tick : axis_ticks(0, frame.last_x, frame.x1 - frame.x0 > wide_panel ? 6 : 4)) {
    if (tick > frame.last_x) continue;
    svg += path("axis", concat("M", frame.at(tick, 0), "v5"));
    svg += text_at(frame.at_x(tick), frame.y1 + 18, "middle", "", short_count(tick));
  }
  return svg + path("axis", concat("M", px(frame.x0), " ", px(frame.y0), "V", px(frame.y1), "H", px(frame.x1)));
}

std::string draw_series(const Frame& frame, const ChartSeries& series, const Styles& styles) {
  const std::vector<ChartPoint>& points = series.points;
  std::string svg, line, upper, lower;
  for (const ChartPoint& p : points) {
    line += concat(line.empty() ? "M" : "L", frame.at(p.x, p.y));
    upper += concat(upper.empty() ? "M" : "L", frame.at(p.x, p.high));
    lower.insert(0, concat("L", frame.at(p.x, p.low)));
  }
  const std::string fill = concat(" fill=\"", styles.colour(series.label), "\"");
  if (std::any_of(points.begin(), points.end(), [](const ChartPoint& p) { return p.low < p.high; })) {
    svg += path("band", upper + lower + "Z", fill + " fill-opacity=\"0.14\"");
  }
  if (!points.empty()) svg += path("line", line, styles.stroke(series.label));
  constexpr std::size_t most_dots = 30;
  for (std::size_t i = 0; points.size() <= most_dots && i < points.size(); ++i) {
    svg += concat("<circle cx=\"", px(frame.at_x(points[i].x)), "\" cy=\"", px(frame.at_y(points[i].y)), "\" r=\"2.4\"",
                  fill, "/>\n");
  }
  return svg;
}

// Labels side by side, as many as fit. Sets `below` to where the legend ends.
std::string draw_legend(const Styles& styles, double& below) {
  std::string svg;
  double x = left, y = title_height + 8;
  for (const std::string& label : styles.labels) {
    const double needed = legend_mark + legend_space + character_width * static_cast<double>(label.size());
    if (x > left && x + needed > width - right) x = left, y += legend_row_height;
    svg += path("line", concat("M", px(x), " ", px(y), "h22"), styles.stroke(label));
    svg += text_at(x + legend_mark, y + 4, "start", "", label);
    x += needed;
  }
  below = y - 8 + (styles.labels.empty() ? 0 : legend_row_height);
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
  for (const double factor : {5.0, 2.0, 1.0}) {
    // The small excess keeps a step that is exact but for rounding.
    if (factor * power * (1 + 1e-9) >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  const auto first = static_cast<long>(std::floor(low / step + 1e-9));
  const auto last = static_cast<long>(std::ceil(high / step - 1e-9));
  for (long n = first; n <= last; ++n) ticks.push_back(static_cast<double>(n) * step);
  return ticks;
}

std::string svg_text(const Chart& given) {
  Chart chart = given;
  double highest = 0;
  for (ChartPanel& panel : chart.panels) {
    for (ChartSeries& series : panel.series) {
      std::erase_if(series.points, [](const ChartPoint& p) { return !std::isfinite(p.x) || !std::isfinite(p.y); });
      for (const ChartPoint& p : series.points) highest = std::max({highest, p.y, p.high});
    }
  }
  // One y axis for all panels, so that heights compare.
  const std::vector<double> y_ticks = axis_ticks(0, highest > 0 ? highest : 0.01, 5);
  const Styles styles(chart);
  double top = 0;
  const std::string legend = draw_legend(styles, top);
  const std::size_t count = chart.panels.size(), columns = std::clamp<std::size_t>(count, 1, panels_in_row);
  const std::size_t rows = std::max<std::size_t>(1, (count + columns - 1) / columns);
  // 400 with one row of panels and one of the legend.
  const double panels_height = panel_row_height * static_cast<double>(rows), height = top + panels_height + bottom;

  std::string svg =
      concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", px(width), "\" height=\"", px(height),
             "\" viewBox=\"0 0 ", px(width), " ", px(height), "\" role=\"img\">\n<title>", escaped(chart.title),
             "</title>\n", style_sheet, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
             text_at(left, 26, "start", " class=\"title\"", chart.title), legend);
  const double panel_width =
      (width - left - right - panel_gap * static_cast<double>(columns - 1)) / static_cast<double>(columns);
  for (std::size_t n = 0; n < count; ++n) {
    const ChartPanel& panel = chart.panels[n];
    const std::size_t row = n / columns;
    const double x0 = left + static_cast<double>(n % columns) * (panel_width + panel_gap);
    const double y0 = top + static_cast<double>(row) * panel_row_height;
    double last_x = 0;
    for (const ChartSeries& series : panel.series) {
      for (const ChartPoint& p : series.points) last_x = std::max(last_x, p.x);
    }
    const Frame frame{x0,
                      x0 + panel_width,
                      y0 + panel_title_height,
                      y0 + panel_row_height - (row + 1 < rows ? row_gap : 0),
                      last_x > 0 ? last_x : 1,
                      y_ticks.back()};
    svg += draw_axes(frame, panel.title, y_ticks, n % columns == 0);
    for (const ChartSeries& series : panel.series) svg += draw_series(frame, series, styles);
  }
  const double middle = top + panels_height / 2;
  svg += text_at((left + width - right) / 2, height - 12, "middle", "", chart.x_label);
  svg += text_at(18, middle, "middle", concat(" transform=\"rotate(-90 18 ", px(middle), ")\""), chart.y_label);
  return svg + "</svg>\n";
}

}  // namespace tally

#include "tasks/print/svg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "core/error.hpp"
#include "tasks/print/page.hpp"
#include "tasks/print/statistics.hpp"

namespace tally {
namespace {

// Distinguishable with colour blindness (Okabe and Ito 2008), with black replaced by grey; lighter on dark pages.
constexpr std::array<Colour, 8> colours{{{"#0072b2", "#4c9fe6"},
                                         {"#d55e00", "#ff8a4c"},
                                         {"#009e73", "#35c494"},
                                         {"#cc79a7", "#e79cc6"},
                                         {"#e69f00", "#f0b429"},
                                         {"#56b4e9", "#8fd3ff"},
                                         {"#5f5f5f", "#a8a8a8"},
                                         {"#a5a000", "#cfc94a"}}};
constexpr std::array dashes{"", "6 3", "2 3", "8 3 2 3"};

constexpr double width = 900, left = 66, right = 22, bottom = 50, panel_gap = 34, panel_height = 292;
constexpr double title_height = 38, legend_row_height = 20, panel_title_height = 24, row_gap = 26;
constexpr std::size_t panels_in_row = 4;
constexpr double legend_mark = 30, legend_space = 20;
constexpr double character_width = 6.6;  // approximate: font metrics are not available here

// Text in an element. Control characters are not allowed in XML.
std::string escaped(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return html_text(text);
}

// A coordinate, rounded to a tenth of a pixel.
std::string px(double value) { return short_number(std::round(10 * value) / 10, 6); }

// "10k" for 10,000, so that tick labels do not overlap.
std::string short_count(double value) {
  if (value >= 1e6) return short_number(value / 1e6, 6) + "M";
  return value >= 1e4 ? short_number(value / 1e3, 6) + "k" : short_number(value, 6);
}

std::string text_at(double x, double y, const char* anchor, const std::string& attributes, const std::string& text) {
  return formatted("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", px(x), px(y), anchor, attributes,
                   escaped(text));
}

std::string path(const char* style, const std::string& d, const std::string& attributes = "") {
  return formatted("<path class=\"{}\" d=\"{}\"{}/>\n", style, d, attributes);
}

// The ground and the letters follow the reader's scheme. Attributes hold the light colours, for other programs.
std::string style_sheet() {
  std::string dark;
  for (const Colour& colour : colours) {
    dark += formatted("[fill=\"{}\"]{{fill:{}}}[stroke=\"{}\"]{{stroke:{}}}", colour.light, colour.dark, colour.light,
                      colour.dark);
  }
  return formatted(
      "<style>text{{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}}.title{{font-size:15px}}"
      ".panel{{font-size:13px}}.title,.panel{{font-weight:600}}svg{{fill:#333}}.grid{{stroke:#e6e6e6;fill:none}}"
      ".axis{{stroke:#777;fill:none}}.line{{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}}"
      "@media(prefers-color-scheme:dark){{.ground{{fill:#0d1117}}svg{{fill:#d5d9e0}}.grid{{stroke:#2a2f38}}{}}}"
      "</style>\n",
      dark);
}

// Colour and dashes of a line, by label. Lines of one colour differ by their dashes.
class Styles {
 public:
  explicit Styles(const Chart& chart) {
    for (const ChartPanel& panel : chart.panels) {
      for (const ChartSeries& series : panel.series) {
        if (std::ranges::count(labels, series.label) > 0) continue;
        const std::string colour = colour_of(series.encoding).light;
        const auto before = static_cast<std::size_t>(std::ranges::count(colours_, colour));
        labels.push_back(series.label);
        colours_.push_back(colour);
        dashes_.emplace_back(dashes[before % dashes.size()]);
      }
    }
  }
  const std::string& colour(const std::string& label) const { return colours_[index_of(label)]; }
  std::string stroke(const std::string& label) const {
    const std::string& dash = dashes_[index_of(label)];
    return formatted(" stroke=\"{}\"{}", colour(label),
                     dash.empty() ? "" : formatted(" stroke-dasharray=\"{}\"", dash));
  }

  std::vector<std::string> labels;  // in order of appearance

 private:
  std::size_t index_of(const std::string& label) const {
    return static_cast<std::size_t>(std::ranges::find(labels, label) - labels.begin());
  }

  std::vector<std::string> colours_, dashes_;
};

// The y axis, the same for all panels, so that heights are comparable. It is logarithmic if some errors are far below
// others, with room for 0 below the lowest decade. Smaller errors are drawn at this decade.
struct ErrorAxis {
  std::vector<double> ticks;
  double low = 0;  // the lowest decade of a logarithmic axis

  explicit ErrorAxis(const Chart& chart) {
    constexpr double far = 20, most_below = 1e-3;
    double high = 0, least = 1, least_positive = 1;
    for (const ChartPanel& panel : chart.panels) {
      for (const ChartSeries& series : panel.series) {
        for (const ChartPoint& p : series.points) {
          high = std::max({high, p.y, p.high});
          least = std::min(least, p.y);
          if (p.y > 0) least_positive = std::min(least_positive, p.y);
        }
      }
    }
    if (high == 0) high = 0.01;
    if (least * far >= high) {
      ticks = axis_ticks(high, 5);
      return;
    }
    const auto decade = [](double value) { return std::pow(10.0, std::floor(std::log10(value) + 1e-9)); };
    low = std::clamp(decade(least_positive), decade(high) * most_below, decade(high / 10));
    for (double tick = low; ticks.empty() || ticks.back() < high * (1 - 1e-9); tick *= 10) ticks.push_back(tick);
  }

  // The height of a value, as a part of the axis.
  double at(double value) const {
    constexpr double zero_room = 0.08;
    if (low == 0) return value / ticks.back();
    if (value <= 0) return 0;
    return zero_room + (1 - zero_room) * std::log(std::max(value, low) / low) / std::log(ticks.back() / low);
  }
};

// The area of a panel in pixels, and the end of its x axis, which begins at 0.
struct Frame {
  double x0, x1, y0, y1;  // left, right, top, bottom
  double last_x;
  const ErrorAxis& axis;

  double at_x(double value) const { return x0 + value / last_x * (x1 - x0); }
  double at_y(double value) const { return y1 - axis.at(value) * (y1 - y0); }
  std::string at(double x, double y) const { return formatted("{} {}", px(at_x(x)), px(at_y(y))); }
};

std::string draw_axes(const Frame& frame, const std::string& title, bool with_y_labels) {
  constexpr double wide_panel = 300, narrow_panel = 150;
  const double panel_width = frame.x1 - frame.x0;
  std::string svg = text_at((frame.x0 + frame.x1) / 2, frame.y0 - 9, "middle", " class=\"panel\"", title);
  const auto label = [&](double value) {
    if (with_y_labels) svg += text_at(frame.x0 - 8, frame.at_y(value) + 4, "end", "", short_number(100 * value) + "%");
  };
  for (const double tick : frame.axis.ticks) {
    svg += path("grid", formatted("M{}H{}", frame.at(0, tick), px(frame.x1)));
    label(tick);
  }
  if (frame.axis.low > 0) label(0);
  const int count = panel_width > wide_panel ? 6 : panel_width > narrow_panel ? 4 : 2;
  for (const double tick : axis_ticks(frame.last_x, count)) {
    if (tick > frame.last_x) continue;
    svg += path("axis", formatted("M{}v5", frame.at(tick, 0)));
    // Narrow panels are so close that the last tick of one would meet the 0 of the next.
    if (tick > 0 || with_y_labels || panel_width > narrow_panel) {
      svg += text_at(frame.at_x(tick), frame.y1 + 18, "middle", "", short_count(tick));
    }
  }
  return svg + path("axis", formatted("M{} {}V{}H{}", px(frame.x0), px(frame.y0), px(frame.y1), px(frame.x1)));
}

std::string draw_series(const Frame& frame, const ChartSeries& series, const Styles& styles) {
  const std::vector<ChartPoint>& points = series.points;
  std::string svg, line, upper, lower;
  for (const ChartPoint& p : points) {
    line += formatted("{}{}", line.empty() ? "M" : "L", frame.at(p.x, p.y));
    upper += formatted("{}{}", upper.empty() ? "M" : "L", frame.at(p.x, p.high));
    lower.insert(0, formatted("L{}", frame.at(p.x, p.low)));
  }
  const std::string fill = formatted(" fill=\"{}\"", styles.colour(series.label));
  if (std::ranges::any_of(points, [](const ChartPoint& p) { return p.low < p.high; })) {
    svg += path("band", upper + lower + "Z", fill + " fill-opacity=\"0.1\"");
  }
  if (!points.empty()) svg += path("line", line, styles.stroke(series.label));
  constexpr std::size_t most_dots = 30;
  if (points.size() > most_dots) return svg;
  for (const ChartPoint& p : points) {
    svg += formatted("<circle cx=\"{}\" cy=\"{}\" r=\"2.4\"{}/>\n", px(frame.at_x(p.x)), px(frame.at_y(p.y)), fill);
  }
  return svg;
}

// Adjacent labels, as long as they fit. Sets `below` to the end of the legend.
std::string draw_legend(const Styles& styles, double& below) {
  std::string svg;
  double x = left, y = title_height + 8;
  for (const std::string& label : styles.labels) {
    const double needed = legend_mark + legend_space + character_width * static_cast<double>(label.size());
    if (x > left && x + needed > width - right) x = left, y += legend_row_height;
    svg += path("line", formatted("M{} {}h22", px(x), px(y)), styles.stroke(label));
    svg += text_at(x + legend_mark, y + 4, "start", "", label);
    x += needed;
  }
  below = y - 8 + (styles.labels.empty() ? 0 : legend_row_height);
  return svg;
}

}  // namespace

Colour colour_of(std::string_view encoding) {
  // A hash. The multiplier gives eight common encodings different colours.
  std::uint32_t hash = 0;
  for (const char c : encoding) hash = (hash ^ static_cast<unsigned char>(c)) * 3'206'845U;
  return colours[hash >> 29];
}

std::vector<double> axis_ticks(double high, int count) {
  const double rough = high / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    // The small excess keeps a step that is exact up to rounding.
    if (factor * power * (1 + 1e-9) >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  const auto last = static_cast<long>(std::ceil(high / step - 1e-9));
  for (long n = 0; n <= last; ++n) ticks.push_back(static_cast<double>(n) * step);
  return ticks;
}

std::string svg_text(const Chart& given) {
  Chart chart = given;
  for (ChartPanel& panel : chart.panels) {
    for (ChartSeries& series : panel.series) {
      std::erase_if(series.points, [](const ChartPoint& p) {
        return !(std::isfinite(p.x) && std::isfinite(p.y) && std::isfinite(p.low) && std::isfinite(p.high));
      });
    }
  }
  const ErrorAxis axis(chart);
  const Styles styles(chart);
  double top = title_height;
  std::string drawn = text_at(left, 26, "start", " class=\"title\"", chart.title) + draw_legend(styles, top);
  const std::size_t count = chart.panels.size();
  const std::size_t columns = std::clamp<std::size_t>(count, 1, panels_in_row);
  const std::size_t rows = std::max<std::size_t>(1, (count + columns - 1) / columns);
  // 400 pixels with one row of panels and one row of the legend.
  const double panels_height = panel_height * static_cast<double>(rows), height = top + panels_height + bottom;
  const double panel_width =
      (width - left - right - panel_gap * static_cast<double>(columns - 1)) / static_cast<double>(columns);
  for (std::size_t n = 0; n < count; ++n) {
    const ChartPanel& panel = chart.panels[n];
    const std::size_t row = n / columns;
    const double x0 = left + static_cast<double>(n % columns) * (panel_width + panel_gap);
    const double y0 = top + static_cast<double>(row) * panel_height;
    double last_x = 0;
    for (const ChartSeries& series : panel.series) {
      for (const ChartPoint& p : series.points) last_x = std::max(last_x, p.x);
    }
    const double y1 = y0 + panel_height - (row + 1 < rows ? row_gap : 0);
    const Frame frame{x0, x0 + panel_width, y0 + panel_title_height, y1, last_x > 0 ? last_x : 1, axis};
    drawn += draw_axes(frame, panel.title, n % columns == 0);
    for (const ChartSeries& series : panel.series) drawn += draw_series(frame, series, styles);
  }
  const double middle = top + panels_height / 2;
  drawn += text_at((left + width - right) / 2, height - 12, "middle", "", chart.x_label);
  drawn += text_at(18, middle, "middle", formatted(" transform=\"rotate(-90 18 {})\"", px(middle)), chart.y_label);
  return formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" "
      "role=\"img\">\n<title>{}</title>\n{}<rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "{}</svg>\n",
      px(width), px(height), px(width), px(height), escaped(chart.title), style_sheet(), drawn);
}

}  // namespace tally

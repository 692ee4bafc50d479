#include "tasks/print/svg.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "tasks/print/svg_parts.hpp"

namespace tally {
using namespace svg;  // NOLINT: the elements of what is drawn here
namespace {

constexpr double left = 66, right = 22, bottom = 50, panel_gap = 34;
constexpr double title_height = 38, legend_row_height = 20, panel_title_height = 24, row_gap = 26;
constexpr std::size_t most_named_at_their_ends = 6;
constexpr double legend_mark = 30, legend_space = 20;
constexpr const char* muted_colour = "#b5b5b5";

// Colour and dashes of a line, by label.
class Styles {
 public:
  explicit Styles(const Chart& chart) {
    for (const ChartPanel& panel : chart.panels) {
      for (const ChartSeries& series : panel.series) {
        if (!series.muted && index_of(series.label) == labels.size()) labels.push_back(series.label);
      }
    }
  }
  std::string colour(const ChartSeries& series) const {
    return series.muted ? muted_colour : colours[index_of(series.label) % colours.size()];
  }
  std::string stroke(const ChartSeries& series) const {
    const std::string dash = series.muted ? "" : dashes[index_of(series.label) / colours.size() % dashes.size()];
    return concat(" stroke=\"", colour(series), "\"", dash.empty() ? "" : concat(" stroke-dasharray=\"", dash, "\""));
  }

  std::vector<std::string> labels;  // in order of appearance

 private:
  std::size_t index_of(const std::string& label) const {
    return static_cast<std::size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin());
  }
};

// The area of a panel in pixels, and the range of its axes. x is logarithmic if it does not begin at 0.
struct Frame {
  double x0, x1, y0, y1;  // left, right, top, bottom
  double first_x, last_x, first_y, last_y;

  double at_x(double value) const {
    const double share = first_x > 0 ? std::log(value / first_x) / std::log(last_x / first_x) : value / last_x;
    return x0 + share * (x1 - x0);
  }
  double at_y(double value) const { return y1 - (value - first_y) / (last_y - first_y) * (y1 - y0); }
  std::string at(double x, double y) const { return concat(px(at_x(x)), " ", px(at_y(y))); }
};

std::string draw_axes(const Frame& frame, const std::string& title, const std::vector<double>& y_ticks,
                      bool with_y_labels, bool numbers) {
  constexpr double wide_panel = 300, narrow_panel = 150;
  const double panel_width = frame.x1 - frame.x0;
  std::string svg = text_at((frame.x0 + frame.x1) / 2, frame.y0 - 9, "middle", " class=\"panel\"", title);
  for (const double tick : y_ticks) {
    svg += path("grid", concat("M", frame.at(frame.first_x, tick), "H", px(frame.x1)));
    if (with_y_labels)
      svg += text_at(frame.x0 - 8, frame.at_y(tick) + 4, "end", "", numbers ? number(tick) : number(100 * tick) + "%");
  }
  const int count = panel_width > wide_panel ? 6 : panel_width > narrow_panel ? 4 : 2;
  const std::vector<double> x_ticks =
      frame.first_x > 0 ? logarithmic_ticks(frame.first_x, frame.last_x) : axis_ticks(0, frame.last_x, count);
  for (const double tick : x_ticks) {
    if (tick > frame.last_x) continue;
    svg += path("axis", concat("M", frame.at(tick, frame.first_y), "v5"));
    // Narrow panels are so close that the last tick of one would meet the 0 of the next.
    if (tick > 0 || with_y_labels || panel_width > narrow_panel) {
      svg += text_at(frame.at_x(tick), frame.y1 + 18, "middle", "", short_count(tick));
    }
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
  const std::string fill = concat(" fill=\"", styles.colour(series), "\"");
  if (!series.muted && std::any_of(points.begin(), points.end(), [](const ChartPoint& p) { return p.low < p.high; })) {
    svg += path("band", upper + lower + "Z", fill + " fill-opacity=\"0.14\"");
  }
  if (!points.empty()) svg += path("line", line, styles.stroke(series));
  constexpr std::size_t most_dots = 30;
  for (std::size_t i = 0; !series.muted && points.size() <= most_dots && i < points.size(); ++i) {
    svg += concat("<circle cx=\"", px(frame.at_x(points[i].x)), "\" cy=\"", px(frame.at_y(points[i].y)), "\" r=\"2.4\"",
                  fill, "/>\n");
  }
  return svg;
}

// Names next to the ends of the lines, moved apart if they would overlap.
std::string draw_names(const Frame& frame, const ChartPanel& panel, const Styles& styles) {
  struct Name {
    double y;
    const ChartSeries* series;
  };
  std::vector<Name> names;
  for (const ChartSeries& series : panel.series) {
    if (!series.points.empty() && !series.muted) names.push_back({frame.at_y(series.points.back().y), &series});
  }
  std::stable_sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.y < b.y; });
  constexpr double line_height = 13;
  for (std::size_t i = names.size(); i-- > 0;) {  // up from the axis
    const double lowest = i + 1 < names.size() ? names[i + 1].y - line_height : frame.y1;
    names[i].y = std::min(names[i].y, lowest);
  }
  std::string svg;
  for (const Name& name : names) {
    svg += text_at(frame.x1 + 7, name.y + 4, "start", concat(" style=\"fill:", styles.colour(*name.series), "\""),
                   name.series->label);
  }
  return svg;
}

// Whether the last panel of every row has all lines, and they are few enough to be named at their ends.
bool named_at_their_ends(const Chart& chart, const Styles& styles) {
  if (chart.panels.empty() || styles.labels.empty() || styles.labels.size() > most_named_at_their_ends) return false;
  const auto in_row = static_cast<std::size_t>(chart.panels_in_row);
  for (std::size_t n = 0; n < chart.panels.size(); ++n) {
    if (n + 1 < chart.panels.size() && (n + 1) % in_row != 0) continue;
    for (const std::string& label : styles.labels) {
      const auto has_it = [&](const ChartSeries& series) { return series.label == label && !series.points.empty(); };
      if (std::ranges::none_of(chart.panels[n].series, has_it)) return false;
    }
  }
  return true;
}

// Adjacent labels, as long as they fit. Sets `below` to the end of the legend.
std::string draw_legend(const Styles& styles, double& below) {
  std::string svg;
  double x = left, y = title_height + 8;
  for (const std::string& label : styles.labels) {
    const double needed = legend_mark + legend_space + character_width * static_cast<double>(label.size());
    if (x > left && x + needed > width - right) x = left, y += legend_row_height;
    svg += path("line", concat("M", px(x), " ", px(y), "h22"), styles.stroke({label, {}}));
    svg += text_at(x + legend_mark, y + 4, "start", "", label);
    x += needed;
  }
  below = y - 8 + (styles.labels.empty() ? 0 : legend_row_height);
  return svg;
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    // The small excess keeps a step that is exact up to rounding.
    if (factor * power * (1 + 1e-9) >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  const auto first = static_cast<long>(std::floor(low / step + 1e-9));
  const auto last = static_cast<long>(std::ceil(high / step - 1e-9));
  for (long n = first; n <= last; ++n) ticks.push_back(static_cast<double>(n) * step);
  return ticks;
}

std::vector<double> logarithmic_ticks(double low, double high) {
  std::vector<double> ticks;
  for (double power = std::pow(10.0, std::floor(std::log10(low) + 1e-9));; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * power;
      if (tick <= low * (1 + 1e-9)) ticks.clear();
      ticks.push_back(tick);
      if (ticks.size() > 1 && tick >= high * (1 - 1e-9)) return ticks;
    }
  }
}

std::string svg_text(const Chart& given) {
  Chart chart = given;
  std::int64_t not_drawn = 0;  // values beyond the range of any axis
  double highest = 0, lowest = std::numeric_limits<double>::infinity();
  for (ChartPanel& panel : chart.panels) {
    for (ChartSeries& series : panel.series) {
      std::erase_if(series.points,
                    [&](const ChartPoint& p) { return !std::isfinite(p.x) || (chart.logarithmic_x && p.x <= 0); });
      constexpr double farthest = 1e300;
      not_drawn += static_cast<std::int64_t>(std::erase_if(series.points, [&](const ChartPoint& p) {
        return !(std::abs(p.y) < farthest && std::abs(p.low) < farthest && std::abs(p.high) < farthest);
      }));
      for (const ChartPoint& p : series.points) {
        highest = std::max({highest, p.y, p.high});
        lowest = std::min({lowest, p.y, p.low});
      }
    }
  }
  if (not_drawn > 0)
    chart.title += concat("; not drawn: ", not_drawn, not_drawn == 1 ? " point" : " points", " beyond 1e300");
  // One y axis for all panels, so that heights are comparable.
  if (!chart.numbers || lowest >= highest) lowest = 0;
  const std::vector<double> y_ticks = axis_ticks(lowest, highest > 0 ? highest : 0.01, 5);
  const Styles styles(chart);
  double top = title_height, margin = right;
  std::string drawn = text_at(left, 26, "start", " class=\"title\"", chart.title);
  const bool many = chart.panels_in_row > 4;  // small panels, each named by its title
  const bool named = !many && named_at_their_ends(chart, styles);
  if (named) {
    top += legend_row_height;
    for (const std::string& label : styles.labels) {
      margin = std::max(margin, 12 + character_width * static_cast<double>(label.size()));
    }
  } else if (many) {
    // No legend either.
  } else {
    drawn += draw_legend(styles, top);
  }
  const std::size_t count = chart.panels.size();
  const std::size_t columns = std::clamp<std::size_t>(count, 1, static_cast<std::size_t>(chart.panels_in_row));
  const std::size_t rows = std::max<std::size_t>(1, (count + columns - 1) / columns);
  // 400 pixels with one row of panels and one row of the legend.
  const double panels_height = chart.panel_height * static_cast<double>(rows), height = top + panels_height + bottom;
  const double gap = many ? panel_gap / 2 : panel_gap;
  const double panel_width =
      (width - left - margin - gap * static_cast<double>(columns - 1)) / static_cast<double>(columns);
  for (std::size_t n = 0; n < count; ++n) {
    const ChartPanel& panel = chart.panels[n];
    const std::size_t row = n / columns;
    const double x0 = left + static_cast<double>(n % columns) * (panel_width + gap);
    const double y0 = top + static_cast<double>(row) * chart.panel_height;
    double first_x = std::numeric_limits<double>::infinity(), last_x = 0;
    for (const ChartSeries& series : panel.series) {
      for (const ChartPoint& p : series.points) first_x = std::min(first_x, p.x), last_x = std::max(last_x, p.x);
    }
    if (last_x <= 0) last_x = 1;
    if (chart.logarithmic_x) {
      const std::vector<double> ticks = logarithmic_ticks(std::min(first_x, last_x), last_x);
      first_x = ticks.front();
      last_x = ticks.back();
    } else {
      first_x = 0;
    }
    const Frame frame{
        x0,      x0 + panel_width, y0 + panel_title_height, y0 + chart.panel_height - (row + 1 < rows ? row_gap : 0),
        first_x, last_x,           y_ticks.front(),         y_ticks.back()};
    drawn += draw_axes(frame, panel.title, y_ticks, n % columns == 0, chart.numbers);
    for (const ChartSeries& series : panel.series) drawn += draw_series(frame, series, styles);
    if (named && (n + 1 == count || (n + 1) % columns == 0)) drawn += draw_names(frame, panel, styles);
  }
  const double middle = top + panels_height / 2;
  drawn += text_at((left + width - margin) / 2, height - 12, "middle", "", chart.x_label);
  drawn += text_at(18, middle, "middle", concat(" transform=\"rotate(-90 18 ", px(middle), ")\""), chart.y_label);
  return document(height, chart.title, drawn);
}

}  // namespace tally

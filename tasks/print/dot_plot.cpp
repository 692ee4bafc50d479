#include "tasks/print/dot_plot.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "tasks/print/svg_parts.hpp"

namespace tally {
using namespace svg;  // NOLINT: the elements of what is drawn here
namespace {

constexpr double top = 62, row_height = 19, bottom = 46, right = 22, panel_gap = 30;
constexpr double zero_width = 26;  // of the strip for errors of 0

// "0.01%", "100%"
std::string percent(double fraction) { return number(100 * fraction) + "%"; }

struct Axis {
  double x0, x1;     // pixels; the logarithmic part
  double low, high;  // range of the axis, powers of ten

  double at(double error) const {
    if (error <= 0) return x0 - zero_width;
    return x0 + std::log10(std::max(error, low) / low) / std::log10(high / low) * (x1 - x0);
  }
};

std::string draw_row(const Axis& axis, double y, const std::vector<double>& errors, const char* colour) {
  const auto [low, high] = std::ranges::minmax(errors);
  const double mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
  std::string svg = path("line", concat("M", px(axis.at(low)), " ", px(y), "H", px(axis.at(high))),
                         concat(" stroke=\"", colour, "\" stroke-opacity=\"0.45\""));
  for (const double error : errors) {
    svg += concat("<circle cx=\"", px(axis.at(error)), "\" cy=\"", px(y), "\" r=\"2.6\" fill=\"", colour,
                  "\" fill-opacity=\"0.55\"/>\n");
  }
  return svg + concat("<circle cx=\"", px(axis.at(mean)), "\" cy=\"", px(y), "\" r=\"5\" fill=\"", colour,
                      "\" stroke=\"#fff\"/>\n");
}

}  // namespace

std::string svg_text(const DotPlot& plot) {
  double left = 40;
  for (const DotRow& row : plot.rows) {
    left = std::max(left, 24 + character_width * static_cast<double>(row.label.size()));
  }
  const double count = static_cast<double>(std::max<std::size_t>(1, plot.panels.size()));
  const double panel_width = (width - left - right - panel_gap * (count - 1)) / count;
  const double last = top + row_height * static_cast<double>(plot.rows.size());
  std::string drawn = text_at(20, 26, "start", " class=\"title\"", plot.title);
  for (std::size_t r = 0; r < plot.rows.size(); ++r) {
    const double y = top + row_height * (static_cast<double>(r) + 0.5);
    drawn += text_at(left - 12, y + 4, "end", "", plot.rows[r].label);
    drawn += path("grid", concat("M", px(left), " ", px(y), "H", px(width - right)));
  }
  for (std::size_t p = 0; p < plot.panels.size(); ++p) {
    const double x0 = left + static_cast<double>(p) * (panel_width + panel_gap) + zero_width + 10;
    const double smallest = p < plot.smallest.size() && plot.smallest[p] > 0 ? plot.smallest[p] : 1e-4;
    const Axis axis{x0, x0 - zero_width - 10 + panel_width, std::pow(10, std::floor(std::log10(smallest) + 1e-9)), 1};
    drawn += text_at((axis.x0 + axis.x1) / 2, top - 12, "middle", " class=\"panel\"", plot.panels[p]);
    drawn += path("axis", concat("M", px(axis.at(0) - 8), " ", px(last), "h16"));
    drawn += text_at(axis.at(0), last + 18, "middle", "", "0");
    drawn += path("axis", concat("M", px(axis.x0), " ", px(last), "H", px(axis.x1)));
    const auto decades = static_cast<int>(std::lround(std::log10(axis.high / axis.low)));
    const int every = panel_width / decades < 52 ? 2 : 1;
    for (int n = 0; n <= decades; ++n) {
      const double tick = axis.high * std::pow(10, -n);
      drawn += path("grid", concat("M", px(axis.at(tick)), " ", px(top), "V", px(last)));
      drawn += path("axis", concat("M", px(axis.at(tick)), " ", px(last), "v5"));
      // The last label would overlap the zero.
      if (n % every == 0 && n < decades) drawn += text_at(axis.at(tick), last + 18, "middle", "", percent(tick));
    }
    for (std::size_t r = 0; r < plot.rows.size(); ++r) {
      if (p >= plot.rows[r].errors.size() || plot.rows[r].errors[p].empty()) continue;
      const double y = top + row_height * (static_cast<double>(r) + 0.5);
      drawn += draw_row(axis, y, plot.rows[r].errors[p], colours[p % colours.size()]);
    }
  }
  return document(last + bottom, plot.title, drawn);
}

std::string stacked(const std::string& title, const std::vector<std::string>& pictures) {
  double height = 0;
  std::string drawn;
  for (const std::string& picture : pictures) {
    constexpr std::string_view mark = " height=\"";
    drawn += concat("<svg y=\"", px(height), "\"", picture.substr(4));
    height += std::stod(picture.substr(picture.find(mark) + mark.size()));
  }
  return document(height, title, drawn);
}

}  // namespace tally

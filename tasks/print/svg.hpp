// Line charts as SVG: adjacent panels with one y axis, and a mean line and a band from low to high for each series.
// Series are named at the ends of their lines. A legend replaces the names if there are many series, or if the last
// panel lacks some. The file is self-contained, with a white background, so that it is readable on any page.
#pragma once

#include <string>
#include <vector>

namespace tally {

struct ChartPoint {
  double x = 0;
  double y = 0;
  double low = 0, high = 0;  // the band; equal to y without a band
};

struct ChartSeries {
  std::string label;               // in the legend; series with the same label have one colour in all panels
  std::vector<ChartPoint> points;  // by rising x
  bool muted = false;              // grey, without a band: a baseline
};

struct ChartPanel {
  std::string title;
  std::vector<ChartSeries> series;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartPanel> panels;
  int panels_in_row = 4;
  double panel_height = 292;   // with its title and its ticks; pixels
  bool logarithmic_x = false;  // all x must be above 0; otherwise the axis begins at 0
  bool numbers = false;  // y values are numbers, on an axis that fits them; otherwise fractions in percent, from 0
};

// Values that are not finite are left out. 900 pixels wide. 400 high for one row of panels of the default height, and
// higher for more rows.
std::string svg_text(const Chart& chart);

// Round numbers that cover low..high (low < high) in about `count` steps of 1, 2 or 5 times a power of ten. The first
// is at most low, the last at least high.
std::vector<double> axis_ticks(double low, double high, int count);

// 1, 2 and 5 times powers of ten that cover low..high (0 < low <= high), at least two. The first is at most low, the
// last at least high.
std::vector<double> logarithmic_ticks(double low, double high);

}  // namespace tally

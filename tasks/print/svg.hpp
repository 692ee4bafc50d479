// Line charts as SVG: panels side by side with one y axis, a mean line and a band from low to high for each series,
// named where the lines end, or in a legend where there are many or the last panel has not all of them. One file that
// needs nothing else, on a white ground, so that it reads on any page.
#pragma once

#include <string>
#include <vector>

namespace tally {

struct ChartPoint {
  double x = 0;
  double y = 0;
  double low = 0, high = 0;  // the band; y where there is none
};

struct ChartSeries {
  std::string label;               // in the legend; series of one label have one colour in all panels
  std::vector<ChartPoint> points;  // by rising x
  bool muted = false;              // grey, without a band: what others are compared with
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
  bool logarithmic_x = false;  // all x above 0 then; else the axis begins at 0
  bool numbers = false;        // y values are numbers, on an axis about them; else shares in percent, from 0 on
};

// Values that are not finite are left out. 900 wide; 400 high for
// one row of panels as they are usually high, and more for more rows.
std::string svg_text(const Chart& chart);

// Round numbers that cover low..high (low < high) in about `count` steps of 1, 2 or 5 times a power of ten; the first
// is at most low, the last at least high.
std::vector<double> axis_ticks(double low, double high, int count);

// 1, 2 and 5 times powers of ten that cover low..high (0 < low <= high), two at least; the first is at most low, the
// last at least high.
std::vector<double> logarithmic_ticks(double low, double high);

}  // namespace tally

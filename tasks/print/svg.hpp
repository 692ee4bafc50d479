// Learning curves as SVG: adjacent panels with one y axis, and a mean line and a band from low to high for each series.
// A legend names the series. The file is self-contained. Its ground is white, or dark if the reader prefers dark pages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tally {

struct ChartPoint {
  double x = 0;
  double y = 0;              // a fraction, shown in percent
  double low = 0, high = 0;  // the band; equal to y without a band
};

struct ChartSeries {
  std::string label;
  std::string encoding;            // gives the colour; series of one encoding differ by their dashes
  std::vector<ChartPoint> points;  // by rising x
};

struct ChartPanel {
  std::string title;
  std::vector<ChartSeries> series;
};

struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartPanel> panels;
};

// Values that are not finite are left out. 900 pixels wide. 400 high for one row of panels, and higher for more rows.
std::string svg_text(const Chart& chart);

// "#0072b2", and the variant for dark pages.
struct Colour {
  const char *light, *dark;
};
// The colour of an encoding in every picture. It depends on the name only. There are eight colours, so two encodings
// may have the same one.
Colour colour_of(std::string_view encoding);

// Round numbers that cover 0..high in about `count` steps of 1, 2 or 5 times a power of ten. The last is at least high.
std::vector<double> axis_ticks(double high, int count);

}  // namespace tally

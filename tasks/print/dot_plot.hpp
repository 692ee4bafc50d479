// Dot plots of errors on a logarithmic axis, with one row per compared item. They hold more items than a line chart
// can.
#pragma once

#include <string>
#include <vector>

namespace tally {

struct DotRow {
  std::string label;
  std::vector<std::vector<double>> errors;  // by panel: the errors of all seeds, as fractions
};

struct DotPlot {
  std::string title;
  std::vector<std::string> panels;  // the measured quantities
  std::vector<double> smallest;     // by panel: the error of one wrong answer; the axis ends there, and 0 is left of it
  std::vector<DotRow> rows;         // from top to bottom
};

// Each seed is a small dot, their mean a large one, with a line from the lowest to the highest. 900 pixels wide.
std::string svg_text(const DotPlot& plot);

// Pictures stacked vertically in one file.
std::string stacked(const std::string& title, const std::vector<std::string>& pictures);

}  // namespace tally

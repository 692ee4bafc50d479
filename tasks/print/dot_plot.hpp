// Errors as dots on a logarithmic axis, a row for each thing compared: what there are too many of for lines.
#pragma once

#include <string>
#include <vector>

namespace tally {

struct DotRow {
  std::string label;
  std::vector<std::vector<double>> errors;  // by panel: those of all seeds, fractions
};

struct DotPlot {
  std::string title;
  std::vector<std::string> panels;  // what is measured
  std::vector<double> smallest;     // by panel: one wrong answer, where the logarithmic axis ends; 0 stands left of it
  std::vector<DotRow> rows;         // from the top
};

// Each seed a small dot, their mean a large one, a line from the lowest to the highest. 900 wide.
std::string svg_text(const DotPlot& plot);

// Pictures one below the other in one file.
std::string stacked(const std::string& title, const std::vector<std::string>& pictures);

}  // namespace tally

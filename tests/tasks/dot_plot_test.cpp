// Dot plots: positions of dots on the logarithmic axis, values of zero, and stacked pictures.
#include "tasks/print/dot_plot.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace tally {
namespace dot_plot_test {

struct Dot {
  double x, y, r;
};

std::vector<Dot> dots(const std::string& svg) {
  static const std::regex circle("<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\" r=\"([0-9.]+)\"");
  std::vector<Dot> found;
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), circle); at != std::sregex_iterator(); ++at) {
    found.push_back({std::stod((*at)[1]), std::stod((*at)[2]), std::stod((*at)[3])});
  }
  return found;
}

TEST(DotPlots, ADecadeIsAsWideAsAnotherAndZeroStandsLeftOfAll) {
  const DotPlot plot{"title", {"sparse"}, {1e-4}, {{"a", {{0, 0}}}, {"b", {{1e-3}}}, {"c", {{1e-2}}}, {"d", {{1e-1}}}}};
  const std::vector<Dot> found = dots(svg_text(plot));
  ASSERT_EQ(found.size(), 9u);  // five seeds and four means
  EXPECT_LT(found[0].x, found[3].x - 20);
  EXPECT_NEAR(found[5].x - found[3].x, found[7].x - found[5].x, 0.2);
  EXPECT_EQ(found[0].y, found[1].y);
  EXPECT_GT(found[3].y, found[0].y);
}

TEST(DotPlots, TheLargeDotIsTheMeanOfTheSeeds) {
  const std::string one = svg_text(DotPlot{"t", {"p"}, {1e-4}, {{"a", {{0.02}}}}});
  const std::string three = svg_text(DotPlot{"t", {"p"}, {1e-4}, {{"a", {{0.01, 0.02, 0.03}}}}});
  EXPECT_EQ(dots(one).back().x, dots(three).back().x);
  EXPECT_GT(dots(three).back().r, dots(three).front().r);
}

TEST(DotPlots, WhatWasNotMeasuredHasNoDot) {
  const std::string svg = svg_text(DotPlot{"t", {"p", "q"}, {1e-4, 1e-3}, {{"a", {{}, {0.5}}}, {"b", {{0.1}, {}}}}});
  EXPECT_EQ(dots(svg).size(), 4u);
  EXPECT_FALSE(std::regex_search(svg, std::regex("nan|inf"))) << svg;
}

TEST(DotPlots, StackedPicturesDoNotCoverEachOther) {
  const std::string one = svg_text(DotPlot{"t", {"p"}, {1e-4}, {{"a", {{0.1}}}}});
  const std::string both = stacked("both", {one, one});
  const std::regex height("<svg[^>]* height=\"([0-9.]+)\""), y("<svg y=\"([0-9.]+)\"");
  std::smatch of_one, of_both;
  ASSERT_TRUE(std::regex_search(one, of_one, height) && std::regex_search(both, of_both, height));
  EXPECT_NEAR(std::stod(of_both[1]), 2 * std::stod(of_one[1]), 0.2);
  std::vector<std::smatch> heights(std::sregex_iterator(both.begin(), both.end(), y), {});
  ASSERT_EQ(heights.size(), 2u);
  EXPECT_EQ(heights[0][1], "0");
  EXPECT_EQ(heights[1][1], of_one[1]);
}

}  // namespace dot_plot_test
}  // namespace tally

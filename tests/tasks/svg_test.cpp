// Charts as SVG: ticks, positions of points, one colour per label, and text and numbers that could break the file.
#include "tasks/print/svg.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <regex>
#include <string>
#include <vector>

namespace tally::svg_test {

std::vector<double> numbers(const std::string& text) {
  static const std::regex number("-?[0-9]+(\\.[0-9]+)?");
  std::vector<double> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), number); at != std::sregex_iterator(); ++at) {
    found.push_back(std::stod(at->str()));
  }
  return found;
}

// The values of an attribute of all elements of a kind.
std::vector<std::string> attributes(const std::string& svg, const std::string& element, const std::string& name) {
  const std::regex pattern("<" + element + "[^>]* " + name + "=\"([^\"]*)\"");
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), pattern); at != std::sregex_iterator(); ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

ChartSeries line(const std::string& label, const std::vector<std::pair<double, double>>& points) {
  ChartSeries series{label, label, {}};
  for (const auto& [x, y] : points) series.points.push_back({x, y, y, y});
  return series;
}

// Opened and closed elements pair up, and no attribute or text holds a bare & or <.
void expect_well_formed(const std::string& svg) {
  static const std::regex tag("<(/?)([a-z]+)((?: [a-zA-Z-]+=\"[^\"<]*\")*)(/?)>");
  std::vector<std::string> open;
  std::string rest;
  auto at = std::sregex_iterator(svg.begin(), svg.end(), tag);
  for (; at != std::sregex_iterator(); ++at) {
    rest += at->prefix();
    if ((*at)[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*at)[2].str());
      open.pop_back();
    } else if ((*at)[4].length() == 0) {
      open.push_back((*at)[2]);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(rest.find('<'), std::string::npos) << rest;
  EXPECT_TRUE(std::regex_search(svg, std::regex("^<svg [^>]*width=\"900\"")));
  EXPECT_FALSE(std::regex_search(svg, std::regex("nan|inf", std::regex::icase))) << svg;
}

TEST(AxisTicks, AreRoundAndCoverTheRange) {
  EXPECT_EQ(axis_ticks(1000, 5), (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  EXPECT_EQ(axis_ticks(0.5, 5).size(), 6u);
  EXPECT_NEAR(axis_ticks(0.113, 5).back(), 0.15, 1e-12);
  for (const double high : {1e-6, 0.003, 0.07, 0.999, 1.0, 17.0, 60.0, 12345.0, 1e9}) {
    for (const int wanted : {4, 6}) {
      const std::vector<double> ticks = axis_ticks(high, wanted);
      EXPECT_EQ(ticks.front(), 0) << high;
      EXPECT_GE(ticks.back(), high * (1 - 1e-9)) << high;
      EXPECT_LE(ticks.size(), static_cast<std::size_t>(wanted) + 2) << high;
      EXPECT_GE(ticks.size(), 3u) << high;
    }
  }
}

TEST(Svg, PointsLieWhereTheAxesSay) {
  const Chart chart{"title", "step", "error", {{"panel", {line("a", {{0, 0.2}, {50, 0.6}, {100, 1}})}}}};
  const std::string svg = svg_text(chart);
  expect_well_formed(svg);
  EXPECT_NE(svg.find("height=\"400\""), std::string::npos);
  const auto x = attributes(svg, "circle", "cx"), y = attributes(svg, "circle", "cy");
  ASSERT_EQ(x.size(), 3u);
  // The axis is one path: down the left side and along the bottom.
  const auto axis = numbers(attributes(svg, "path class=\"axis\"", "d").back());
  const double left = axis[0], top = axis[1], bottom = axis[2], right = axis[3];
  EXPECT_DOUBLE_EQ(std::stod(x[0]), left);
  EXPECT_DOUBLE_EQ(std::stod(x[2]), right);
  EXPECT_NEAR(std::stod(x[1]), (left + right) / 2, 0.1);
  EXPECT_NEAR(std::stod(y[0]), bottom - 0.2 * (bottom - top), 0.1);
  EXPECT_DOUBLE_EQ(std::stod(y[2]), top);
  EXPECT_NEAR(std::stod(y[1]), bottom - 0.6 * (bottom - top), 0.1);
  EXPECT_NE(svg.find(">100%<"), std::string::npos);
}

TEST(Svg, AColourBelongsToAnEncoding) {
  ChartSeries first = line("cope, one layer", {{1, 0.1}}), second = line("cope, two layers", {{1, 0.2}});
  first.encoding = second.encoding = "cope";
  const std::string svg =
      svg_text({"t", "x", "y", {{"p", {line("none", {{1, 0.3}}), first}}, {"q", {line("none", {{1, 0.3}}), second}}}});
  EXPECT_STRNE(colour_of("none").light, colour_of("cope").light);
  EXPECT_EQ(attributes(svg, "circle", "fill"),
            (std::vector<std::string>{colour_of("none").light, colour_of("cope").light, colour_of("none").light,
                                      colour_of("cope").light}));
  EXPECT_EQ(attributes(svg, "path class=\"line\"", "stroke-dasharray").size(), 2u)
      << "the second of cope, and its name";
  EXPECT_EQ(count(svg, ">none</text>"), 1u);  // in the legend
}

TEST(Svg, SurvivesWhatCannotBeDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const Chart& chart :
       {Chart{"", "", "", {}}, Chart{"t", "x", "y", {{"empty", {}}}},
        Chart{"t", "x", "y", {{"none", {{"a", "a", {}}}}}}, Chart{"t", "x", "y", {{"zero", {line("a", {{0, 0}})}}}},
        Chart{"t", "x", "y", {{"bad", {line("a", {{1, nan}, {2, infinity}, {3, 0.5}})}}}}}) {
    expect_well_formed(svg_text(chart));
  }
}

TEST(Svg, TextIsEscaped) {
  const std::string svg = svg_text({"a < b & \"c\"", "x", "y", {{"<script>", {line("a&b\n", {{1, 1}})}}}});
  expect_well_formed(svg);
  EXPECT_EQ(svg.find("<script>"), std::string::npos);
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
}

}  // namespace tally::svg_test

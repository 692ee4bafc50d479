// Charts as SVG: ticks, positions of points, one colour per label, and text and numbers that could break the file.
#include "tasks/print/svg.hpp"

#include <gtest/gtest.h>

#include <cmath>
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

TEST(Svg, SmallErrorsGetALogarithmicAxisWithRoomForZero) {
  const Chart chart{"t", "x", "y", {{"p", {line("a", {{1, 1}, {2, 0.1}, {3, 0.01}, {4, 1e-9}, {5, 0}})}}}};
  const std::string svg = svg_text(chart);
  std::vector<double> y;
  for (const std::string& each : attributes(svg, "circle", "cy")) y.push_back(std::stod(each));
  ASSERT_EQ(y.size(), 5u);
  EXPECT_NEAR(y[2] - y[1], y[1] - y[0], 0.15);
  EXPECT_NEAR(y[3] - y[2], y[1] - y[0], 0.15) << "the lowest decade";
  EXPECT_EQ(y[4], numbers(attributes(svg, "path class=\"axis\"", "d").back())[2]) << "0 is on the axis";
  EXPECT_GT(y[4] - y[3], 12) << "with room for its label";
  for (const char* label : {">100%<", ">0.1%<", ">0%<"}) EXPECT_NE(svg.find(label), std::string::npos) << label;
}

TEST(Svg, GroundLettersAndLinesFollowTheScheme) {
  const std::string svg = svg_text({"t", "x", "y", {{"p", {line("cope", {{1, 0.1}})}}}});
  const std::size_t dark = svg.find("@media(prefers-color-scheme:dark)");
  ASSERT_NE(dark, std::string::npos);
  for (const std::string part : {".ground{fill:#0d1117}", colour_of("cope").dark}) {
    EXPECT_NE(svg.find(part, dark), std::string::npos) << part;
  }
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

TEST(Svg, FewLinesAreNamedWhereTheyEnd) {
  // none ends below cope, so close that their names must be moved apart.
  const Chart chart{"t",
                    "x",
                    "y",
                    {{"first", {line("cope", {{0, 1}, {1, 0.51}}), line("none", {{0, 1}, {1, 0.5}})}},
                     {"last", {line("cope", {{0, 1}, {1, 0.51}}), line("none", {{0, 1}, {1, 0.5}})}}}};
  const std::string svg = svg_text(chart);
  expect_well_formed(svg);
  const std::regex name(
      "<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" text-anchor=\"start\" class=\"name\" fill=\"([^\"]*)\">(cope|none)<");
  std::vector<std::smatch> names(std::sregex_iterator(svg.begin(), svg.end(), name), {});
  ASSERT_EQ(names.size(), 2u) << svg;
  EXPECT_EQ(names[0][4], "cope");
  EXPECT_GE(std::stod(names[1][2]) - std::stod(names[0][2]), 12);
  const auto axes = attributes(svg, "path class=\"axis\"", "d");
  EXPECT_GT(std::stod(names[0][1]), numbers(axes.back())[3]) << "right of the last panel";
  EXPECT_NE(names[0][3], names[1][3]);
}

TEST(Svg, BandsWhereThereAreSome) {
  Chart chart{"t", "x", "y", {{"p", {line("a", {{1, 0.1}, {2, 0.2}})}}}};
  EXPECT_EQ(count(svg_text(chart), "fill-opacity"), 0u);
  chart.panels[0].series[0].points[1] = {2, 0.2, 0.1, 0.6};
  const std::string svg = svg_text(chart);
  EXPECT_EQ(count(svg, "fill-opacity"), 1u);
  EXPECT_NE(svg.find(">60%<"), std::string::npos);  // the axis includes the band
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

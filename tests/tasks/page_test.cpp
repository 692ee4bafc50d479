// Pages: text in a script or in HTML stays text; matrices are unpacked within the precision that
// tasks/inspect/inspect.hpp states.
#include "tasks/print/page.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "tasks/inspect/inspect.hpp"
#include "tests/tasks/unpack.hpp"

namespace tally::testing::page_test {

TEST(Page, DataInAScriptCannotEndIt) {
  const JsonValue hostile =
      JsonValue::object({{"</script><script>alert(1)//", "<!-- \xe2\x80\xa8 \xe2\x80\xa9 \" \\ é"}});
  const std::string text = script_json(hostile);
  EXPECT_EQ(text.find('<'), std::string::npos);
  EXPECT_EQ(text.find("\xe2\x80\xa8"), std::string::npos);
  EXPECT_EQ(text.find("\xe2\x80\xa9"), std::string::npos);
  EXPECT_EQ(parse_json(text, {}, "page"), hostile);
}

TEST(Page, PartsArePutTogether) {
  const std::string page =
      make_page("inspect.html", "a <title>", JsonValue::object({{"key", "{{style.css}}</script>"}}));
  EXPECT_EQ(html_text("<a b='\"&'>"), "&lt;a b=&#39;&quot;&amp;&#39;&gt;");
  EXPECT_NE(page.find("<title>a &lt;title&gt;</title>"), std::string::npos);
  EXPECT_NE(page.find(page_source("style.css")), std::string::npos);
  EXPECT_NE(page.find(R"({"key":"{{style.css}}\u003c/script>"})"), std::string::npos) << "data is not looked into";
  for (const char* outside : {"http://", "https://", "url(", "src=", "@import", "{{packed", "{{inspect"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_THROW(make_page("nothing.html", "", {}), Error);
  EXPECT_TRUE(page_source("nothing.css").empty());
}

// Matrices of different kinds.
std::vector<std::function<double(std::mt19937&, double i, double j)>> kinds() {
  return {
      [](auto&, double, double) { return 0.0; },
      [](auto&, double, double) { return 1.0; },
      [](auto&, double i, double) { return 1 / (i + 1); },
      [](auto&, double, double) { return 0.0019; },
      [](auto& random, double, double) { return std::uniform_real_distribution<>(0, 1)(random); },
      [](auto& random, double, double) { return std::uniform_real_distribution<>(0, 1)(random) < 0.7 ? 0.001 : 0.999; },
      [](auto& random, double, double) { return std::pow(std::uniform_real_distribution<>(0, 1)(random), 40.0); }};
}

TEST(Packing, ComesBackAsExactAsItSays) {
  for (const std::int64_t length : {1, 2, 17, 300}) {
    const double levels = length > 256 ? 100 : 255;
    int kind = 0;
    for (const auto& value : kinds()) {
      SCOPED_TRACE(::testing::Message() << "kind " << kind++ << " of " << length);
      std::mt19937 random(7);
      std::vector<double> square(static_cast<std::size_t>(length * length));
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t j = 0; j <= i; ++j) {
          square[static_cast<std::size_t>(i * length + j)] =
              value(random, static_cast<double>(i), static_cast<double>(j));
        }
      }
      const auto unpacked = [&](Packing packing) {
        return unpack(pack_square(square, length, packing), length, name_of(packing), levels);
      };
      const Unpacked shares = unpacked(Packing::share), gates = unpacked(Packing::gates),
                     breaks = unpacked(Packing::breaks);
      for (std::int64_t i = 0; i < length; ++i) {
        double sum = 0, left = 1;
        for (std::int64_t j = i; j >= 0; --j) {
          const auto element = static_cast<std::size_t>(i * length + j);
          const double v = square[element];
          sum += v;
          left *= 1 - v;
          ASSERT_NEAR(shares.values[element], v, std::sqrt(v) / 255 + 4e-6) << i << " " << j;
          ASSERT_NEAR(gates.values[element], v, 1 / levels + 1e-12) << i << " " << j;
          ASSERT_NEAR(gates.sums[element], sum, 0.5 / levels + 1e-12) << i << " " << j;
          ASSERT_NEAR(breaks.values[element], v, 3 * std::sqrt(v) / 255 + 4e-5) << i << " " << j;
          ASSERT_NEAR(breaks.sums[element], left, 0.01) << i << " " << j;
        }
      }
    }
  }
}

TEST(Packing, KeepsTheSignsOfShares) {
  const std::int64_t length = 40;
  std::mt19937 random(3);
  for (const double most : {0.3, 1.0, 2.5}) {
    std::vector<double> square(static_cast<std::size_t>(length * length));
    double largest = 0;
    for (double& x : square) {
      x = most * std::pow(std::uniform_real_distribution<>(-1, 1)(random), 5);
      largest = std::max(largest, std::abs(x));
    }
    const std::string packed = pack_square(square, length, Packing::share);
    const Unpacked shown = unpack(packed, length, name_of(Packing::share));
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        const auto element = static_cast<std::size_t>(i * length + j);
        const double x = square[element], bound = std::sqrt(largest * std::abs(x)) / 127 + largest / (4 * 127 * 127);
        ASSERT_NEAR(shown.values[element], x, bound) << i << " " << j;
      }
    }
  }
}

}  // namespace tally::testing::page_test

// Options by name: listing, strict parsing, ranges, choices, suggestions.
#include "nn/options.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "tests/error_of.hpp"

namespace tally::options_test {

struct Sample final : OptionsOf<Sample> {
  bool tied = false;
  std::int64_t heads = 4;
  std::int64_t count = 7;
  double lr = 0.5;
  double rate = 0;
  double mean = 0.9;
  double eps = 1;
  std::string norm = "layer";
  std::string label = "x";

  void visit(OptionVisitor& visitor) override {
    visitor.flag("tied", tied, "share");
    visitor.integer("heads", heads, "of attention", 1, 8);
    visitor.integer("count", count, "of anything", -3);
    visitor.real("lr", lr, "learning rate");
    visitor.real("dropout-rate", rate, "share dropped", 0, 1);
    visitor.real("mean", mean, "share kept", 0, below(1));
    visitor.real("eps", eps, "added", above(0));
    visitor.choice("norm", norm, {"layer", "rms"}, "kind of norm");
    visitor.text("label", label, "any text");
  }
};

std::string error_of(Sample& sample, std::string_view name, std::string_view text) {
  return testing::error_of([&] { set_option(sample, "model", name, text); });
}

// All values, as text.
std::string values_of(Sample& sample) {
  std::string text;
  for (const OptionInfo& info : list_options(sample)) text += to_text(info.value) + " ";
  return text;
}

TEST(Options, AreListedInOrderWithValuesAndLimits) {
  Sample sample;
  const std::vector<OptionInfo> infos = list_options(sample);
  ASSERT_EQ(infos.size(), 9u);
  EXPECT_EQ(infos[0].name, "tied");
  EXPECT_EQ(std::get<bool>(infos[0].value), false);
  EXPECT_EQ(infos[1].help, "of attention");
  EXPECT_EQ(std::get<std::int64_t>(infos[1].value), 4);
  EXPECT_EQ(infos[1].range, "1 to 8");
  EXPECT_EQ(infos[2].range, "at least -3");
  EXPECT_EQ(std::get<double>(infos[3].value), 0.5);
  EXPECT_EQ(infos[3].range, "");
  EXPECT_EQ(infos[4].range, "0 to 1");
  EXPECT_EQ(infos[5].range, "in [0, 1)");
  EXPECT_EQ(infos[6].range, "above 0");
  EXPECT_EQ(infos[7].allowed, (std::vector<std::string>{"layer", "rms"}));
  EXPECT_EQ(std::get<std::string>(infos[8].value), "x");
  EXPECT_EQ(infos[5].help_with_range(), "share kept (in [0, 1))");
  EXPECT_EQ(infos[3].help_with_range(), "learning rate");
  EXPECT_EQ(infos[7].help_with_range(), "kind of norm (layer|rms)");
}

TEST(Options, AreSetFromText) {
  Sample sample;
  set_option(sample, "model", "tied", "true");
  set_option(sample, "model", "heads", "8");
  set_option(sample, "model", "count", "-3");
  set_option(sample, "model", "lr", "3e-4");
  set_option(sample, "model", "dropout-rate", "1");
  set_option(sample, "model", "norm", "rms");
  set_option(sample, "model", "label", "a b");
  EXPECT_TRUE(sample.tied);
  EXPECT_EQ(sample.heads, 8);
  EXPECT_EQ(sample.count, -3);
  EXPECT_EQ(sample.lr, 3e-4);
  EXPECT_EQ(sample.rate, 1);
  EXPECT_EQ(sample.norm, "rms");
  EXPECT_EQ(sample.label, "a b");
  set_option(sample, "model", "tied", "false");
  EXPECT_FALSE(sample.tied);
}

TEST(Options, WhatIsNotReadableIsRefusedAndChangesNothing) {
  Sample sample;
  const std::string before = values_of(sample);
  for (const char* text : {"", "1", "yes", "True", "true "}) {
    EXPECT_EQ(error_of(sample, "tied", text), "[model] tied must be true or false, got '" + std::string(text) + "'");
  }
  for (const char* text : {"", "4.0", "4x", " 4", "4 ", "+4", "0x4", "1e0", "four"}) {
    EXPECT_EQ(error_of(sample, "heads", text), "[model] heads must be an integer, got '" + std::string(text) + "'");
  }
  for (const char* text : {"", "nan", "-nan", "inf", "-inf", "infinity", "1.5x", " 1", "1 ", "1,5", "+1", "0x1p3"}) {
    EXPECT_EQ(error_of(sample, "lr", text), "[model] lr must be a finite number, got '" + std::string(text) + "'");
  }
  for (const char* text : {"1e999", "-1e999", "1e-999"}) {
    EXPECT_EQ(error_of(sample, "lr", text), "[model] lr = '" + std::string(text) + "' is out of range");
  }
  EXPECT_EQ(error_of(sample, "heads", "99999999999999999999"),
            "[model] heads = '99999999999999999999' is out of range");
  EXPECT_EQ(values_of(sample), before);
}

TEST(Options, AnOpenEndIsNotInTheRangeAndTheNumberBeforeItIs) {
  Sample sample;
  EXPECT_EQ(error_of(sample, "mean", "0"), "");
  EXPECT_EQ(error_of(sample, "mean", "0.9999999999999999"), "");
  EXPECT_EQ(sample.mean, 0.9999999999999999);
  EXPECT_EQ(error_of(sample, "eps", "5e-324"), "");
  EXPECT_EQ(error_of(sample, "mean", "0.99999999999999999"),
            "[model] mean must be in [0, 1), got '0.99999999999999999'");
}

TEST(Options, ValuesFromCodeAreCheckedAsThoseFromText) {
  Sample sample;
  EXPECT_NO_THROW(check_values(sample, "model"));
  sample.mean = 1;
  EXPECT_THROW(check_values(sample, "model"), Error);
  sample.mean = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(check_values(sample, "model"), Error);
}

TEST(Options, WhatIsOutOfRangeIsRefusedAndChangesNothing) {
  Sample sample;
  const std::string before = values_of(sample);
  EXPECT_EQ(error_of(sample, "heads", "0"), "[model] heads must be 1 to 8, got '0'");
  EXPECT_EQ(error_of(sample, "heads", "9"), "[model] heads must be 1 to 8, got '9'");
  EXPECT_EQ(error_of(sample, "count", "-4"), "[model] count must be -3 to 2147483647, got '-4'");
  EXPECT_EQ(error_of(sample, "count", "2147483648"), "[model] count must be -3 to 2147483647, got '2147483648'");
  EXPECT_EQ(error_of(sample, "dropout-rate", "-1e-9"), "[model] dropout-rate must be 0 to 1, got '-1e-9'");
  EXPECT_EQ(error_of(sample, "dropout-rate", "1.01"), "[model] dropout-rate must be 0 to 1, got '1.01'");
  EXPECT_EQ(error_of(sample, "mean", "1"), "[model] mean must be in [0, 1), got '1'");
  EXPECT_EQ(error_of(sample, "mean", "-1e-9"), "[model] mean must be in [0, 1), got '-1e-9'");
  EXPECT_EQ(error_of(sample, "eps", "0"), "[model] eps must be above 0, got '0'");
  EXPECT_EQ(error_of(sample, "eps", "-0.0"), "[model] eps must be above 0, got '-0.0'");
  EXPECT_EQ(error_of(sample, "norm", "batch"), "[model] norm must be one of layer, rms; got 'batch'");
  EXPECT_EQ(error_of(sample, "norm", ""), "[model] norm must be one of layer, rms; got ''");
  EXPECT_EQ(values_of(sample), before);
}

TEST(Options, OneWithoutEffectIsRefusedUnlessItHasItsDefault) {
  struct Dependent final : OptionsOf<Dependent> {
    std::string kind = "plain";
    bool mixed = false;
    std::int64_t size = 3;
    void visit(OptionVisitor& visitor) override {
      visitor.choice("kind", kind, {"plain", "short", "long"}, "kind");
      visitor.flag("mixed", mixed, "of any kind");
      visitor.only_with("kind", {"short", "long"});
      visitor.integer("size", size, "of short and long ones");
    }
  } options;
  options.mixed = true;
  EXPECT_NO_THROW(check_values(options, "model"));
  options.size = 4;
  EXPECT_EQ(testing::error_of([&] { check_values(options, "model"); }),
            "[model] size = 4 has no effect with kind = plain; it is for kind = short or long");
  options.kind = "long";
  EXPECT_NO_THROW(check_values(options, "model"));
}

TEST(Split, LeavesBracketsWhole) {
  EXPECT_EQ(split("a,b[c,d],", ','), (std::vector<std::string_view>{"a", "b[c,d]", ""}));
}

TEST(Options, AnUnknownNameIsRefusedWithTheNearest) {
  Sample sample;
  const std::string before = values_of(sample);
  EXPECT_EQ(error_of(sample, "head", "1"), "[model] unknown option 'head'; did you mean 'heads'?");
  EXPECT_EQ(error_of(sample, "droput-rate", "1"), "[model] unknown option 'droput-rate'; did you mean 'dropout-rate'?");
  EXPECT_EQ(error_of(sample, "dropout_rate", "1"),
            "[model] unknown option 'dropout_rate'; did you mean 'dropout-rate'?");
  EXPECT_EQ(error_of(sample, "Heads", "1"), "[model] unknown option 'Heads'; did you mean 'heads'?");
  EXPECT_EQ(error_of(sample, "zzz", "1"),
            "[model] unknown option 'zzz'; known are tied, heads, count, lr, dropout-rate, mean, eps, norm, label");
  EXPECT_EQ(values_of(sample), before);
}

TEST(NearestName, CountsEditsAndSwaps) {
  const std::vector<std::string> names{"flip-flop", "selective-copy", "counting"};
  EXPECT_EQ(nearest_name("flipflop", names), "flip-flop");
  EXPECT_EQ(nearest_name("filp-flop", names), "flip-flop");
  EXPECT_EQ(nearest_name("selective_copy", names), "selective-copy");
  EXPECT_EQ(nearest_name("cuonting", names), "counting");
  EXPECT_EQ(nearest_name("parity", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("counting", {}), "");
  EXPECT_EQ(nearest_name(std::string(10'000'000, 'c'), names), "");
}

TEST(NearestName, PrefersFewerEditsThenTheFirst) {
  EXPECT_EQ(nearest_name("cope", {"rope", "cope-mlp", "copy"}), "rope");
  EXPECT_EQ(nearest_name("rop", {"cope", "rope"}), "rope");
  EXPECT_EQ(nearest_name("ab", {"ba", "zz"}), "ba");  // a swap is one edit
}

}  // namespace tally::options_test

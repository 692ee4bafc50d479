// Encodings compared with others: the same function in another form, and forms with a single difference.
#include "tasks/checks/encoding_check.hpp"

#include <gtest/gtest.h>

#include <string>

#include "autograd/ops.hpp"

namespace tally::encoding_rewriting_test {

struct PenaltyOptions final : OptionsOf<PenaltyOptions> {
  bool squared = false;
  double start = 0.1;
  void visit(OptionVisitor& visitor) override {
    visitor.flag("squared", squared, "of the distance");
    visitor.real("start", start, "of the rate");
  }
};

// A learned penalty on the distance, in one of several forms; all but the first two are wrong somewhere.
enum class Form { dense, shape, no_square, shifted, no_gradient, other_shape, other_name };

template <Form form>
struct Penalty final : Encoding {
  Penalty(const EncodingSetup& setup, const PenaltyOptions& options)
      : squared_(options.squared && form != Form::no_square),
        rate_(setup.parameter(form == Form::other_name ? "slope" : "rate",
                              form == Form::other_shape ? Shape{setup.heads, 1} : Shape{setup.heads},
                              Fill::constant(options.start), Scope::layer)) {}

  void score(const AttentionInput& in, Score& score) const override {
    const Tensor rate = form == Form::no_gradient ? rate_ * 0.5 + rate_.detach() * 0.5 : rate_;
    const Tensor distances =
        form == Form::shifted ? in.distances([](std::int64_t n) { return n > 40 ? 41.0 : double(n); }) : in.distances();
    const Tensor row = negate(reshape(rate, {rate.size(0), 1}) * (squared_ ? distances * distances * 0.1 : distances));
    if (form == Form::dense) {
      score.biases.push_back(Dense{read_distance(unsqueeze(row, 1), in.keys(), true)});
    } else {
      score.biases.push_back(Toeplitz{row});
    }
  }

  bool squared_;
  Tensor rate_;
};

template <Form form>
EncodingChoice penalty(const char* name) {
  static const EncodingEntry entry = encoding_entry<PenaltyOptions, Penalty<form>>(name, "", "", "");
  EncodingChoice choice;
  choice.parts.push_back({&entry, entry.make_options()});
  return choice;
}

template <Form form>
Finding against_dense() {
  return compare(rewritings_of(penalty<form>("fast"), penalty<Form::dense>("slow")).front());
}

TEST(EncodingRewriting, TheSameFunctionInAnotherForm) {
  const Finding same = against_dense<Form::shape>();
  EXPECT_EQ(same.kind, Finding::Kind::good) << same.text;
  EXPECT_TRUE(same.text.starts_with("logits of 150 tokens and gradients of ")) << same.text;
}

TEST(EncodingRewriting, NamesTheFirstThatDiffers) {
  const auto expect_wrong = [](const Finding& found, const std::string& begin, const std::string& end) {
    EXPECT_EQ(found.kind, Finding::Kind::wrong);
    EXPECT_TRUE(found.text.starts_with(begin) && found.text.ends_with(end)) << found.text;
  };
  expect_wrong(against_dense<Form::shifted>(), "logits differ by ", "of the largest, from token 42 of 150 on");
  // The last layer is the first one in backward.
  expect_wrong(against_dense<Form::no_gradient>(), "the gradient of blocks.1.position.fast.rate differs by ",
               "of the largest of all; logits agree");
  const std::string others =
      "[check] fast takes the parameters of slow by name, and they are others; give them the same names and shapes: ";
  expect_wrong(against_dense<Form::other_shape>(), others,
               "blocks.0.position.fast.rate is f64 [2] but must be f64 [2, 1]; blocks.1.position.fast.rate is f64 [2] "
               "but must be f64 [2, 1]");
  expect_wrong(against_dense<Form::other_name>(), others, "blocks.1.position.fast.rate is unexpected");
}

// Shared options are changed in both encodings, so that an option which the rewriting ignores is found.
TEST(EncodingRewriting, WithEachOptionOfBoth) {
  const std::vector<Rewriting> same = rewritings_of(penalty<Form::shape>("fast"), penalty<Form::dense>("slow"));
  ASSERT_EQ(same.size(), 3u);
  for (const Rewriting& one : same) EXPECT_EQ(compare(one).kind, Finding::Kind::good) << one.rewritten.label;
  const auto forgotten = rewritings_of(penalty<Form::no_square>("fast"), penalty<Form::dense>("slow"));
  EXPECT_EQ(compare(forgotten[0]).kind, Finding::Kind::good);
  EXPECT_EQ(forgotten[1].rewritten.label, "fast squared=true");
  EXPECT_EQ(compare(forgotten[1]).kind, Finding::Kind::wrong);
  // Options that the other encoding lacks are omitted.
  EXPECT_EQ(rewritings_of(penalty<Form::shape>("fast"), EncodingChoice::parse("alibi")).size(), 1u);
  EXPECT_EQ(rewritings_of(penalty<Form::shape>("fast"), penalty<Form::dense>("slow"), {"fast.squared"}).size(), 2u);
}

TEST(EncodingRewriting, OfRegisteredEncodings) {
  const auto found = [](const char* one, const char* other) {
    return compare(rewritings_of(EncodingChoice::parse(one), EncodingChoice::parse(other)).front());
  };
  EXPECT_EQ(found("none", "none[window=4096]").kind, Finding::Kind::good);
  EXPECT_EQ(found("cope+rope", "rope+cope").kind, Finding::Kind::good);
  const std::string text = found("none", "none[window=7]").text;
  EXPECT_TRUE(text.ends_with("of the largest, from token 7 of 150 on")) << text;
  EXPECT_EQ(found("alibi", "rope").kind, Finding::Kind::wrong);
}

}  // namespace tally::encoding_rewriting_test

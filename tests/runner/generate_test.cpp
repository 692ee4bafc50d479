// tally generate: continues from the model's own samples, which do not depend on the number of threads or samples.
#include <gtest/gtest.h>

#include <cmath>

#include "tasks/evaluation/generate.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing::generate_test {

class Generate : public Program {
 protected:
  void train(const std::string& encoding) {
    std::filesystem::remove_all(folder_ / "run");
    done(tiny("run", encoding, "--optimiser.lr=0.02"));
  }
  JsonValue::Array samples(const std::string& options) {
    return json("generate run --prompt=w0i1 " + options).elements("samples");
  }
  std::string text(const std::string& options) { return samples(options).at(0).string("text"); }
};

TEST_F(Generate, GivesTheSameTextForAnyThreadsAndSamples) {
  train("cope+rope");
  const JsonValue::Array three = samples("--count=12 --samples=3 --seed=7 --threads=1");
  ASSERT_EQ(three.size(), 3u);
  const std::string first = three[0].string("text");
  EXPECT_EQ(first.size(), 12u);
  EXPECT_NE(first, three[1].string("text"));
  EXPECT_EQ(samples("--count=12 --samples=3 --seed=7 --threads=2"), three);
  EXPECT_EQ(text("--count=12 --seed=7"), first);
  EXPECT_NE(text("--count=12 --seed=8"), first);
  const std::string raw = "generate run --prompt=w0i1 --count=12 --seed=7 --quiet";
  EXPECT_EQ(done(raw), first + "\n");
  EXPECT_EQ(done(raw + " --raw"), first);
}

// The second text's token probabilities equal the output of `tally inspect --text`.
TEST_F(Generate, EachTextGoesOnFromItself) {
  train("cope");
  const JsonValue::Array two = samples("--count=6 --samples=2 --seed=7");
  const std::string second = two.at(1).string("text");
  ASSERT_NE(second, two.at(0).string("text"));
  const JsonValue told = json("inspect run --top=5 --text w0i1" + second.substr(0, 5));
  for (const JsonValue& candidate : told.elements("candidates")) {
    if (candidate.string("symbol") != second.substr(5, 1)) continue;
    EXPECT_NEAR(std::exp(two[1].elements("log_probabilities").at(5).real()), candidate.real("probability"), 1e-5);
    return;
  }
  FAIL() << "the token is among the candidates";
}

// The prompt is computed once, and the cache of every kind of layer is copied for each text.
TEST_F(Generate, TextsGoOnFromOnePrompt) {
  for (const char* pe : {"fox-pro", "nexus", "transformer-xl", "absolute+hard"}) {
    SCOPED_TRACE(pe);
    train(pe);
    // Probabilities detect a wrong state even if the chosen tokens are equal.
    const auto probabilities = [&](const std::string& count) {
      std::vector<double> all;
      for (const JsonValue& one : samples("--count=8 --temperature=0 --samples=" + count)) {
        for (const JsonValue& log : one.elements("log_probabilities")) all.push_back(log.real());
      }
      return all;
    };
    const std::vector<double> alone = probabilities("1"), together = probabilities("3");
    ASSERT_EQ(alone.size(), 8u);
    ASSERT_EQ(together.size(), 24u);
    for (std::size_t n = 0; n < together.size(); ++n) EXPECT_NEAR(together[n], alone[n % 8], 1e-5) << n;
  }
}

// The table holds 16 tokens. A prompt of 40 tokens is halved until it fits, to its last 10.
TEST_F(Generate, EndsOrSlidesAtTheEndOfATable) {
  train("absolute");
  const std::string whole = text("--count=20 --seed=3"), stop = whole.substr(5, 2);
  EXPECT_EQ(text("--count=20 --seed=3 --stop " + stop), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(text("--count=60").size(), 13u) << "12 more are fed, and one more is told";
  EXPECT_EQ(text("--count=60 --full=slide").size(), 60u);
  std::string prompt;
  for (int n = 0; n < 10; ++n) prompt += n % 3 == 0 ? "w0i1" : "i0r1";
  const auto line = [](const std::string& from, const std::string& options) {
    return "generate run --seed=5 --prompt " + from + options;
  };
  const Finished slid = tally(line(prompt, " --full=slide --count=6"));
  EXPECT_TRUE(holds(slid.err, "of the prompt's 40 tokens the model takes the last 10")) << slid.err;
  EXPECT_EQ(slid.out, done(line(prompt.substr(30), " --count=6")));
  EXPECT_EQ(done(line(prompt, " --full=slide --count=30 --quiet")).size(), 31u);
  EXPECT_EQ(tally(line(prompt, " --count=6")).code, 1);
  const std::string anew = "each token computes the whole text anew: a model with the encoding absolute+hard ";
  EXPECT_FALSE(holds(slid.err, "anew"));
  train("absolute+hard");
  const std::string note = tally(line("w0i1", " --count=4")).err;
  EXPECT_TRUE(holds(note, anew) && note.find(anew) == note.rfind(anew)) << note;
}

// The examples of Unicode 15, table 3-8, and of the text around it.
TEST(TextStreams, ReplaceWhatIsNotText) {
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(with_replacements("a\n\xe2\x82\xac"), "a\n\xe2\x82\xac");
  EXPECT_EQ(with_replacements("\xda!\xed\xa0\x80"), mark + "!" + mark + mark + mark) << "one for each byte";
}

TEST(TextStreams, ShowWholeCharactersAndNothingThatSteersATerminal) {
  TextStream stream;
  EXPECT_EQ(stream.add("a\xe2\x82"), "a") << "the rest may come";
  EXPECT_EQ(stream.add("\xac!"), "\xe2\x82\xac!");
  EXPECT_EQ(stream.add("\xff\x1b[31m\n\tb\\"), "\\xff\\x1b[31m\n\tb\\");
  EXPECT_EQ(stream.add("\xf0\x9f"), "");
  EXPECT_EQ(stream.finish(), "\\xf0\\x9f");
  TextStream raw("", true);
  EXPECT_EQ(raw.add("\x1b\xe2"), "\x1b\xe2");
}

TEST(TextStreams, EndBeforeTheStop) {
  TextStream stream("end");
  EXPECT_EQ(stream.add("one e"), "one ");
  EXPECT_EQ(stream.add("nergy en"), "energy ");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.add("d more"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.add("more"), "");
}

}  // namespace tally::testing::generate_test

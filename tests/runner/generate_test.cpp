// tally generate: continues from the model's own samples, which do not depend on the number of threads or samples.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/evaluation/generate.hpp"
#include "tests/runner/program.hpp"
#include "tests/runner/run_files.hpp"

namespace tally::testing {
namespace generate_test {

class Generate : public ::testing::Test {
 protected:
  void train(const std::string& encoding) {
    ASSERT_EQ(run_tally(tiny_training(run_, encoding, {"--optimiser.lr=0.02"}), folder_).code, 0);
  }
  Finished generate(std::vector<std::string> words) {
    words.insert(words.begin(), {"generate", run_, "--prompt=w0i1"});
    return run_tally(words, folder_);
  }
  std::vector<std::string> texts(std::vector<std::string> words) {
    words.emplace_back("--json");
    const Finished finished = generate(words);
    EXPECT_EQ(finished.code, 0) << finished.err;
    std::vector<std::string> texts;
    const JsonValue json = parse_json(finished.out, JsonLimits{}, "generate");
    for (const JsonValue& one : json.elements("samples")) {
      texts.push_back(one.string("text"));
    }
    return texts;
  }

  TemporaryFolder folder_;
  std::string run_ = folder_ / "run";
};

TEST_F(Generate, GivesTheSameTextForAnyThreadsAndSamples) {
  train("cope+rope");
  const std::vector<std::string> three = texts({"--count=12", "--samples=3", "--seed=7", "--threads=1"});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].size(), 12u);
  EXPECT_NE(three[0], three[1]);
  EXPECT_EQ(texts({"--count=12", "--samples=3", "--seed=7", "--threads=2"}), three);
  EXPECT_EQ(texts({"--count=12", "--samples=1", "--seed=7"}).at(0), three[0]);
  EXPECT_NE(texts({"--count=12", "--samples=1", "--seed=8"}).at(0), three[0]);
  EXPECT_EQ(generate({"--count=12", "--seed=7", "--quiet"}).out, three[0] + "\n");
}

// The second text's token probabilities equal the output of `tally inspect --text`.
TEST_F(Generate, EachTextGoesOnFromItself) {
  train("cope");
  const Finished finished = generate({"--count=6", "--samples=2", "--seed=7", "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const JsonValue second = parse_json(finished.out, JsonLimits{}, "generate").elements("samples").at(1);
  const std::string text = second.string("text");
  ASSERT_NE(text, parse_json(finished.out, JsonLimits{}, "generate").elements("samples").at(0).string("text"));
  const Finished predicted =
      run_tally({"inspect", run_, "--text", "w0i1" + text.substr(0, 5), "--top=5", "--json"}, folder_);
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  const JsonValue json = parse_json(predicted.out, JsonLimits{}, "predict");
  for (const JsonValue& candidate : json.elements("candidates")) {
    if (candidate.string("symbol") != text.substr(5, 1)) continue;
    EXPECT_NEAR(std::exp(second.elements("log_probabilities").at(5).real()), candidate.real("probability"), 1e-5);
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
    const auto probabilities = [&](const std::string& samples) {
      const Finished finished = generate({"--count=8", "--temperature=0", "--json", samples});
      EXPECT_EQ(finished.code, 0) << finished.err;
      std::vector<std::vector<double>> all;
      const JsonValue json = parse_json(finished.out, JsonLimits{}, "generate");
      for (const JsonValue& one : json.elements("samples")) {
        std::vector<double>& texts = all.emplace_back();
        for (const JsonValue& log : one.elements("log_probabilities")) texts.push_back(log.real());
      }
      return all;
    };
    const std::vector<double> alone = probabilities("--samples=1").at(0);
    ASSERT_EQ(alone.size(), 8u);
    const std::vector<std::vector<double>> together = probabilities("--samples=3");
    ASSERT_EQ(together.size(), 3u);
    for (const std::vector<double>& one : together) {
      for (std::size_t n = 0; n < alone.size(); ++n) EXPECT_NEAR(one[n], alone[n], 1e-5) << n;
    }
    std::filesystem::remove_all(run_);
  }
}

// Each token and its probability equal the answer of `tally inspect --text`.
TEST_F(Generate, AtTemperature0ItTakesTheLikeliest) {
  train("cope+rope");
  const Finished finished = generate({"--count=4", "--temperature=0", "--json"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const JsonValue one = parse_json(finished.out, JsonLimits{}, "generate").elements("samples").at(0);
  std::string text = "w0i1";
  for (std::size_t n = 0; n < 4; ++n) {
    const Finished answer = run_tally({"inspect", run_, "--text", text, "--json"}, folder_);
    ASSERT_EQ(answer.code, 0) << answer.err;
    const JsonValue best = parse_json(answer.out, JsonLimits{}, "inspect").elements("candidates").at(0);
    EXPECT_NEAR(std::exp(one.elements("log_probabilities").at(n).real()), best.real("probability"), 1e-5) << n;
    text += best.string("symbol");
  }
  EXPECT_EQ("w0i1" + one.string("text"), text);
}

TEST_F(Generate, EndsWhereItShould) {
  train("absolute");
  const std::string text = texts({"--count=20", "--seed=3"}).at(0);
  const std::string stop = text.substr(5, 2);
  EXPECT_EQ(texts({"--count=20", "--seed=3", "--stop", stop}).at(0), text.substr(0, text.find(stop)));
  // The table holds 16 tokens.
  EXPECT_EQ(texts({"--count=60"}).at(0).size(), 13u) << "12 more are fed, and one more is told";
  EXPECT_EQ(texts({"--count=60", "--full=slide"}).at(0).size(), 60u);
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--temperature=-1"},
                                                {"--top-p=2"},
                                                {"--top-p=0"},
                                                {"--top-k=-1"},
                                                {"--full=wrap"},
                                                {"--count=0"}}) {
    EXPECT_EQ(generate(wrong).code, 2) << wrong.front();
  }
  EXPECT_EQ(run_tally({"generate", run_}, folder_).code, 2) << "no prompt";
  EXPECT_EQ(run_tally({"generate", run_, "--prompt=wx"}, folder_).code, 2);
}

// The table holds 16 tokens. A prompt of 40 tokens is halved until it fits, to its last 10.
TEST_F(Generate, SlidesOverAPromptThatIsTooLong) {
  train("absolute");
  std::string prompt;
  for (int n = 0; n < 10; ++n) prompt += n % 3 == 0 ? "w0i1" : "i0r1";
  const auto go_on = [&](const std::string& from, const std::vector<std::string>& more) {
    std::vector<std::string> words{"generate", run_, "--prompt", from, "--seed=5"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tally(words, folder_);
  };
  const Finished slid = go_on(prompt, {"--full=slide", "--count=6"});
  EXPECT_EQ(slid.code, 0) << slid.err;
  EXPECT_TRUE(holds(slid.err, "of the prompt's 40 tokens the model takes the last 10")) << slid.err;
  EXPECT_EQ(slid.out, go_on(prompt.substr(30), {"--count=6"}).out);
  EXPECT_EQ(go_on(prompt, {"--full=slide", "--count=30", "--quiet"}).out.size(), 31u);
  EXPECT_EQ(go_on(prompt, {"--count=6"}).code, 1);
}

TEST_F(Generate, SaysOnceThatEachTokenComputesAllAnew) {
  const std::string note = "each token computes the whole text anew: a model with the encoding absolute+hard ";
  train("absolute+hard");
  const Finished anew = generate({"--count=4"});
  EXPECT_EQ(anew.err.find(note), anew.err.rfind(note)) << anew.err;
  EXPECT_TRUE(holds(anew.err, note)) << anew.err;
  std::filesystem::remove_all(run_);
  train("absolute");
  EXPECT_FALSE(holds(generate({"--count=4"}).err, "anew"));
}

TEST_F(Generate, RawIsWhatTheModelSaysAndNothingElse) {
  train("none");
  const std::string text = texts({"--count=6"}).at(0);
  EXPECT_EQ(generate({"--count=6", "--quiet"}).out, text + "\n");
  EXPECT_EQ(generate({"--count=6", "--quiet", "--raw"}).out, text);
  for (const char* idle : {"--top-k=3", "--top-p=0.5", "--seed=9"}) {
    const Finished greedy = generate({"--temperature=0", idle});
    EXPECT_EQ(greedy.code, 2) << idle;
    EXPECT_TRUE(holds(greedy.err, "has no effect with --temperature 0")) << greedy.err;
  }
  const Finished special = generate({"--specials=w"});
  EXPECT_EQ(special.code, 2);
  EXPECT_TRUE(holds(special.err, "has no special tokens")) << special.err;
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

}  // namespace generate_test
}  // namespace tally::testing

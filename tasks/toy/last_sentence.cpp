// Last sentence (the example of CoPE, arXiv 2405.18719, tables 1 and 6, as a task): how often does a word occur in the
// last sentence?
//
// The text has S sentences, S uniform in 2..6. Each has n words, n uniform in 2..12, and a full stop. A word is one of
// 2 names with probability 0.8, else one of 16 fillers. Then come `?` and a name. The question is how often the name
// occurs in the sentence `back` before the last (0: the last), as a token 0..12 (12 for more):
//
//   Alice w3 Bob . w7 Bob Bob . ? Bob 2
//
// With back-max M > 0 the sentence is part of the question: `? b2 Bob`, b uniform in 0..M. S is raised to b+1 if it is
// smaller. ood-more has 7..12 sentences. ood-long has 2..4 sentences of 4..24 words, with names half as frequent. Its
// counts are therefore similar, in sentences twice as long.
//
// Counting over the last w tokens, for any w, is right in 43% at most. A better model must use the full stops, which
// are at no fixed token position. The majority answer is wrong in 78.6%. The count over the whole text is right in 2%,
// the count in the sentence before in 15%. (The paper's own experiment asks two chat models about one text of two
// sentences.)
#include <algorithm>

#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

constexpr std::int64_t name_count = 2, fillers = 16, most_counted = 12;

struct LastSentenceOptions final : OptionsOf<LastSentenceOptions> {
  std::int64_t sentences = 6;
  std::int64_t words = 12;
  std::int64_t back = 0;
  std::int64_t back_max = 0;
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("sentences", sentences,
                    "most sentences of train and in-distribution; up to twice as many in ood-more", 2, 1 << 16);
    visitor.integer("words", words, "most words of a sentence; twice as many in ood-long", 2, 1 << 16);
    visitor.integer("back", back, "sentence in question, counted back from the last one, which is 0", 0, 1 << 10);
    visitor.integer("back-max", back_max, "if not 0, the question names the sentence: uniform in 0 to this", 0,
                    1 << 10);
    visitor.integer("eval-count", eval_count, "sequences of each evaluation split", 1);
  }
};

struct LastSentenceLaw {
  std::int64_t least_sentences, most_sentences, least_words, most_words;
  std::uint32_t name_tenths;  // share of names, in tenths
};

class LastSentence final : public ToyTask<LastSentenceLaw> {
 public:
  LastSentence(const LastSentenceOptions& options, const Seeds& seeds)
      : ToyTask({"last-sentence", symbols(options.back_max), Writing::words}, seeds),
        back_(options.back),
        back_max_(options.back_max) {
    check(back_ == 0 || back_max_ == 0, "last-sentence",
          "back = {} has no effect with back-max = {}: the question says which sentence", back_, back_max_);
    const auto add = [&](const char* name, std::int64_t count, const LastSentenceLaw& law) {
      const std::int64_t most = std::max(law.most_sentences, std::max(back_, back_max_) + 1);
      add_split({name,
                 formatted("{} to {} sentences of {} to {} words", law.least_sentences, law.most_sentences,
                           law.least_words, law.most_words),
                 count, most * (law.most_words + 1) + (back_max_ > 0 ? 3 : 2)},
                law);
    };
    const std::int64_t sentences = options.sentences, words = options.words, count = options.eval_count;
    add("train", 0, {2, sentences, 2, words, 8});
    add("in-distribution", count, {2, sentences, 2, words, 8});
    add("ood-more", count, {sentences + 1, 2 * sentences, 2, words, 8});
    add("ood-long", count, {2, 4, 4, 2 * words, 4});
  }

 private:
  enum Symbol : std::int32_t { full_stop = name_count + fillers, question, first_count, first_back = first_count + 13 };

  static std::vector<std::string> symbols(std::int64_t back_max) {
    std::vector<std::string> all{"Alice", "Bob"};
    append(all, numbered("w", fillers));
    append(all, {".", "?"});
    append(all, numbered("", most_counted + 1));
    if (back_max > 0) append(all, numbered("b", back_max + 1));
    return all;
  }

  Example draw(Rng& rng, const LastSentenceLaw& law) const override {
    std::int64_t sentences = uniform_in(rng, law.least_sentences, law.most_sentences);
    const std::int64_t back = back_max_ > 0 ? uniform_in(rng, 0, back_max_) : back_;
    sentences = std::max(sentences, back + 1);
    const auto asked = static_cast<std::int32_t>(rng.below(name_count));
    std::vector<std::int32_t> tokens;
    std::int64_t counted = 0;
    for (std::int64_t left = sentences - 1; left >= 0; --left) {
      const std::int64_t words = uniform_in(rng, law.least_words, law.most_words);
      for (std::int64_t i = 0; i < words; ++i) {
        const bool is_name = rng.below(10) < law.name_tenths;
        tokens.push_back(static_cast<std::int32_t>(is_name ? rng.below(name_count) : name_count + rng.below(fillers)));
        if (left == back) counted += tokens.back() == asked;
      }
      tokens.push_back(full_stop);
    }
    tokens.push_back(question);
    if (back_max_ > 0) tokens.push_back(first_back + static_cast<std::int32_t>(back));
    tokens.push_back(asked);
    Example example = tag_example(std::move(tokens));
    const auto answer = static_cast<std::int32_t>(first_count + std::min(counted, most_counted));
    ask(example, example.tokens.size() - 1, answer);
    return example;
  }

  std::int64_t back_, back_max_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    last_sentence, LastSentenceOptions, LastSentence, "how often does a name occur in the last sentence?",
    "Sentences of 2 to 12 words, names or fillers, each with a full stop; then `?` and a name, and the answer is how\n"
    "often it occurs in the last sentence, or in one before it (options). Loss and score are on the answer. ood-more\n"
    "has more sentences, ood-long longer ones with fewer names.",
    "Golovneva et al. 2024 (CoPE), arXiv 2405.18719, tables 1 and 6");

// Every toy task: the answers of its sequences by independent references, and checksums of the sequences themselves.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "core/io/checksum.hpp"
#include "tests/tasks/make_task.hpp"

namespace tally::toy_answers_test {

using testing::make_task;
using testing::Settings;
using Tokens = std::vector<std::int32_t>;

// "length=32 loss=all".
Settings settings_of(const std::string& text) {
  Settings settings;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equal = word.find('=');
    settings.emplace_back(word.substr(0, equal), word.substr(equal + 1));
  }
  return settings;
}

// A sequence and its settings, from which a reference computes the answers. Only recall tasks read its mask.
struct Given {
  const Task& task;
  const Settings& settings;
  const std::string& split;
  const Example& example;

  const Tokens& tokens() const { return example.tokens; }
  std::string option(std::string_view name, const std::string& usual) const {
    for (const auto& [own, value] : settings) {
      if (own == name) return value;
    }
    return usual;
  }
  std::size_t number(std::string_view name, const std::string& usual) const {
    return static_cast<std::size_t>(std::stoll(option(name, usual)));
  }
};

constexpr std::int32_t none = -1;

struct Answers {
  explicit Answers(const Given& given) : scored(given.tokens().size(), none), key(none) {}
  Tokens scored;          // the answer at each position that is scored
  Tokens also_trained{};  // the same for other positions in the loss; empty if there are none
  std::int64_t key;       // of all positions; none if the task has no breakdown, or a key for each position
};

std::size_t find(const Tokens& tokens, std::int32_t token) {
  return static_cast<std::size_t>(std::ranges::find(tokens, token) - tokens.begin());
}
Tokens part(const Tokens& tokens, std::size_t begin, std::size_t end) {
  return {tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end)};
}

// The outputs follow the token at `separator`, and each is predicted from the token before.
Answers with_outputs(const Given& given, std::size_t separator, const Tokens& outputs) {
  Answers answers(given);
  EXPECT_EQ(part(given.tokens(), separator + 1, given.tokens().size()), outputs);
  std::ranges::copy(outputs, answers.scored.begin() + static_cast<std::ptrdiff_t>(separator));
  return answers;
}

Answers addition(const Given& given) {
  const auto base = static_cast<std::int32_t>(given.task.vocabulary().size()) - 3;
  const std::size_t plus = find(given.tokens(), base), equals = find(given.tokens(), base + 1);
  Tokens a = part(given.tokens(), 0, plus), b = part(given.tokens(), plus + 1, equals);
  const std::size_t digits = std::max(a.size(), b.size());
  const bool big = given.option("order", "big") == "big";
  std::int64_t sum = 0;
  for (Tokens* number : {&a, &b}) {
    if (big) std::ranges::reverse(*number);
    EXPECT_TRUE(number->size() == 1 || number->back() > 0);
    std::int64_t value = 0;
    for (auto digit = number->rbegin(); digit != number->rend(); ++digit) value = value * base + *digit;
    sum += value;
  }
  Tokens outputs;
  for (; sum > 0 || outputs.empty(); sum /= base) outputs.push_back(static_cast<std::int32_t>(sum % base));
  if (big) std::ranges::reverse(outputs);
  outputs.push_back(base + 2);
  Answers answers = with_outputs(given, equals, outputs);
  answers.key = static_cast<std::int64_t>(digits);
  return answers;
}

Answers counting(const Given& given) {
  enum : std::int32_t { equals = 11, semicolon, increment, pass, print };
  std::map<std::int32_t, std::int32_t> values;
  const Tokens& tokens = given.tokens();
  std::size_t t = 0;
  while (tokens.at(t) != print) {
    if (tokens[t] == pass) {
      ++t;
    } else if (tokens.at(t + 1) == increment) {
      EXPECT_TRUE(values.contains(tokens[t])) << "only a variable that was set is incremented";
      EXPECT_LE(++values[tokens[t]], 10);
      t += 2;
    } else {
      EXPECT_EQ(part(tokens, t + 1, t + 4), (Tokens{equals, 0, semicolon}));
      values[tokens[t]] = 0;
      t += 4;
    }
  }
  EXPECT_EQ(t + 2, tokens.size());
  Answers answers(given);
  answers.scored.back() = values.at(tokens.back());
  answers.key = answers.scored.back();
  return answers;
}

Answers flip_flop(const Given& given) {
  enum : std::int32_t { write, read };
  const Tokens& tokens = given.tokens();
  Answers answers(given);
  EXPECT_TRUE(tokens.front() == write && tokens[tokens.size() - 2] == read);
  std::int32_t memory = none;
  for (std::size_t t = 0; t < tokens.size(); t += 2) {
    if (tokens[t] == write) memory = tokens[t + 1];
    if (tokens[t] == read) answers.scored[t] = memory;
  }
  if (given.option("loss", "reads") == "all") answers.also_trained = part(tokens, 1, tokens.size());
  return answers;
}

std::vector<Tokens> permutations(std::size_t points, bool even_only) {
  std::vector<Tokens> all;
  Tokens images(points);
  std::iota(images.begin(), images.end(), 0);
  do {
    std::int64_t inversions = 0;
    for (std::size_t x = 0; x < points; ++x) {
      inversions += std::ranges::count_if(part(images, x, points), [&](auto y) { return y < images[x]; });
    }
    if (!even_only || inversions % 2 == 0) all.push_back(images);
  } while (std::ranges::next_permutation(images).found);
  return all;
}

// An element is a permutation and a residue. Except in a4xz5, one of the two has a single value.
Answers group_word(const Given& given) {
  const std::string group = given.option("group", "a5");
  const std::map<std::string, std::int32_t> moduli{{"z60", 60}, {"a4xz5", 5}, {"s3", 1}, {"a5", 1}, {"s5", 1}};
  const std::map<std::string, std::size_t> points{{"z60", 1}, {"a4xz5", 4}, {"s3", 3}, {"a5", 5}, {"s5", 5}};
  const std::int32_t modulus = moduli.at(group);
  const std::vector<Tokens> all = permutations(points.at(group), group.starts_with('a'));
  EXPECT_EQ(given.tokens().front(), std::ssize(all) * modulus) << "the start symbol";
  Answers answers(given);
  Tokens product = all[0];
  std::int32_t residue = 0;
  for (std::size_t t = 1; t < given.tokens().size(); ++t) {
    const Tokens& next = all.at(static_cast<std::size_t>(given.tokens()[t] / modulus));
    for (std::int32_t& image : product) image = next[static_cast<std::size_t>(image)];
    residue = (residue + given.tokens()[t]) % modulus;
    answers.scored[t] = static_cast<std::int32_t>(std::ranges::find(all, product) - all.begin()) * modulus + residue;
    EXPECT_EQ(given.example.keys[t], static_cast<std::int32_t>(t));
  }
  return answers;
}

Answers last_sentence(const Given& given) {
  constexpr std::int32_t full_stop = 18, question = 19, first_count = 20, first_back = 33;
  const Tokens& tokens = given.tokens();
  Tokens counts;  // of the name in each sentence, the last sentence first
  for (std::size_t t = 0; tokens[t] != question; ++t) {
    if (t == 0 || tokens[t - 1] == full_stop) counts.insert(counts.begin(), 0);
    counts.front() += tokens[t] == tokens.back();
  }
  const bool is_named = given.option("back-max", "0") != "0";
  const std::size_t back =
      is_named ? static_cast<std::size_t>(tokens[tokens.size() - 2] - first_back) : given.number("back", "0");
  Answers answers(given);
  answers.scored.back() = first_count + std::min(counts.at(back), 12);
  return answers;
}

Answers last_x(const Given& given) {
  const auto colours = static_cast<std::int32_t>(given.number("colours", "8"));
  Answers answers(given);
  Tokens latest;  // the colour of the last x up to each position
  std::int32_t colour = none;
  std::size_t last_x = 0;
  for (std::size_t t = 0; t < given.tokens().size(); ++t) {
    const bool is_x = given.tokens()[t] < colours;
    if (is_x) {
      colour = given.tokens()[t];
      last_x = t;
    }
    latest.push_back(colour);
  }
  EXPECT_EQ(given.tokens().back(), 2 * colours);
  answers.scored.back() = colour;
  answers.key = static_cast<std::int64_t>(given.tokens().size() - 2 - last_x);
  if (given.option("loss", "all") == "all") answers.also_trained = part(latest, 0, latest.size() - 1);
  return answers;
}

// A prompt, a separator, and the answer to the prompt; with `every`, the answer to each of its beginnings is trained.
Answers one_answer(const Given& given, std::int32_t (*answer)(const Tokens& prompt)) {
  const std::size_t n = given.tokens().size() - 1;
  const Tokens prompt = part(given.tokens(), 0, n);
  Answers answers(given);
  answers.scored.back() = answer(prompt);
  answers.key = static_cast<std::int64_t>(n);
  for (std::size_t t = 1; given.option("every", "false") == "true" && t <= n; ++t) {
    answers.also_trained.push_back(answer(part(prompt, 0, t)));
  }
  EXPECT_EQ(given.tokens().back(), std::ssize(given.task.vocabulary()) - 1);
  return answers;
}

Answers parity(const Given& given) {
  return one_answer(given, [](const Tokens& bits) { return std::accumulate(bits.begin(), bits.end(), 0) % 2; });
}
Answers even_pairs(const Given& given) {
  return one_answer(given, [](const Tokens& bits) { return bits.front() ^ bits.back(); });
}
Answers cycle_navigation(const Given& given) {
  return one_answer(given, [](const Tokens& actions) {
    std::int32_t state = 0;
    for (const std::int32_t action : actions) state += action - 6;  // 5, 6, 7: back, stay, on
    return (state % 5 + 5) % 5;
  });
}
Answers missing_duplicate(const Given& given) {
  return one_answer(given, [](const Tokens& twice) {
    const std::size_t m = twice.size() / 2, blank = find(twice, 2);
    EXPECT_EQ(std::ranges::count(twice, 2), 1);
    for (std::size_t i = 0; i < m; ++i) EXPECT_TRUE(i == blank % m || twice[i] == twice[m + i]);
    return twice.at((blank + m) % (2 * m));
  });
}

// The value mod 5 of tokens[at..], * before + and -; `at` is advanced past it.
std::int32_t value_of(const Tokens& tokens, std::size_t& at);
std::int32_t factor_of(const Tokens& tokens, std::size_t& at) {
  const std::int32_t token = tokens.at(at++);
  if (token < 5) return token;
  if (token == 6) return (5 - factor_of(tokens, at)) % 5;
  EXPECT_EQ(token, 8);
  const std::int32_t value = value_of(tokens, at);
  EXPECT_EQ(tokens.at(at++), 9);
  return value;
}
std::int32_t product_of(const Tokens& tokens, std::size_t& at) {
  std::int32_t value = factor_of(tokens, at);
  while (at < tokens.size() && tokens[at] == 7) value = value * factor_of(tokens, ++at) % 5;
  return value;
}
std::int32_t value_of(const Tokens& tokens, std::size_t& at) {
  std::int32_t value = product_of(tokens, at);
  while (at < tokens.size() && (tokens[at] == 5 || tokens[at] == 6)) {
    const std::int32_t sign = tokens[at] == 5 ? 1 : -1;
    value = (value + sign * product_of(tokens, ++at) + 5) % 5;
  }
  return value;
}
Answers modular_arithmetic(const Given& given) {
  return one_answer(given, [](const Tokens& expression) {
    std::size_t at = 0;
    const std::int32_t value = value_of(expression, at);
    EXPECT_EQ(at, expression.size());
    return value;
  });
}

Answers string_map(const Given& given) {
  const std::size_t n = find(given.tokens(), static_cast<std::int32_t>(given.task.vocabulary().size()) - 1);
  const std::string map = given.option("map", "copy");
  const Tokens string = part(given.tokens(), 0, n);
  Tokens outputs = string;
  if (map == "reverse") std::ranges::reverse(outputs);
  if (map == "sort") std::ranges::sort(outputs);
  if (map == "duplicate") outputs.insert(outputs.end(), string.begin(), string.end());
  Answers answers = with_outputs(given, n, outputs);
  answers.key = static_cast<std::int64_t>(n);
  return answers;
}

Answers selective_copy(const Given& given) {
  const std::size_t prompt = given.tokens().size() - given.number("non-blanks", "256");
  Tokens outputs = part(given.tokens(), 0, prompt);
  std::erase(outputs, 15);
  return with_outputs(given, prompt - 1, outputs);
}

// The pairs of the context, the updates behind them, then each key once.
Answers recall(const Given& given) {
  const bool updated = given.split == "ood-all";
  const std::size_t pairs = given.number("pairs", "0") * (given.split == "ood-dense" ? 2 : 1);
  const std::size_t updates = updated ? pairs : given.number("updates", "0"), context = 2 * (pairs + updates);
  const auto first_value = static_cast<std::int32_t>(given.task.vocabulary().size() / 2);
  std::map<std::int32_t, std::int32_t> values;
  std::set<std::int32_t> first_values, updated_keys, asked;
  for (std::size_t t = 0; t < context; t += 2) {
    const std::int32_t key = given.tokens()[t], value = given.tokens()[t + 1];
    EXPECT_TRUE(0 < key && key < first_value && first_value <= value);
    if (t < 2 * pairs) {
      EXPECT_TRUE(values.emplace(key, value).second && first_values.insert(value).second);
    } else {
      EXPECT_NE(std::exchange(values.at(key), value), value);
      EXPECT_TRUE(updated_keys.insert(key).second);
    }
  }
  Answers answers(given);
  for (std::size_t t = context; t < given.tokens().size(); ++t) {
    if (given.example.score_mask[t] != 0) {
      EXPECT_TRUE(t % 2 == 0 && asked.insert(given.tokens()[t]).second);
      answers.scored[t] = values.at(given.tokens()[t]);
    } else if (given.option("filler", "zero") == "zero") {
      EXPECT_EQ(given.tokens()[t], 0);
    }
  }
  EXPECT_EQ(asked.size(), pairs);
  return answers;
}

Answers n_back(const Given& given) {
  const std::size_t n = given.number("n", "2");
  std::map<std::int32_t, Tokens> values;
  Answers answers(given);
  for (std::size_t t = 0; t < given.tokens().size(); t += 2) {
    Tokens& earlier = values[given.tokens()[t]];
    if (earlier.size() >= n) answers.scored[t] = earlier[earlier.size() - n];
    earlier.push_back(given.tokens()[t + 1]);
  }
  EXPECT_LE(values.size(), given.number("keys", "32") / (given.split == "ood-dense" ? 2 : 1));
  return answers;
}

Answers passkey(const Given& given) {
  const std::string text(given.tokens().begin(), given.tokens().end());
  const std::size_t question = text.size() - 8;
  const std::size_t statement = text.find(text.substr(question, 3));
  const Tokens digits = part(given.tokens(), statement + 3, statement + 8);
  Answers answers = with_outputs(given, text.size() - 6, digits);
  const std::size_t distance = text.size() - 5 - statement;
  const std::size_t quarter = 1 + 4 * distance / text.size();
  answers.key = static_cast<std::int64_t>(quarter);
  std::string filler;
  std::set<char> letters;
  for (std::size_t at = 0; at < question;) {
    if (text[at] != '[') {
      filler += text[at++];
      continue;
    }
    EXPECT_TRUE(letters.insert(text.at(at + 1)).second && text.at(at + 2) == '=' && text.at(at + 8) == ']');
    at += 9;
  }
  EXPECT_EQ(letters.size(), given.number("statements", "2") * (given.split == "ood-decoys" ? 2 : 1));
  std::string sentence = "a gull cries and the long grey wave rolls in over sand. ";
  while (sentence.size() < 2 * text.size()) sentence += sentence;
  EXPECT_NE(sentence.find(filler), std::string::npos) << filler;
  return answers;
}

const std::map<std::string, Answers (*)(const Given&)> references{{"addition", addition},
                                                                  {"counting", counting},
                                                                  {"cycle-navigation", cycle_navigation},
                                                                  {"even-pairs", even_pairs},
                                                                  {"flip-flop", flip_flop},
                                                                  {"group-word", group_word},
                                                                  {"last-sentence", last_sentence},
                                                                  {"last-x", last_x},
                                                                  {"missing-duplicate", missing_duplicate},
                                                                  {"modular-arithmetic", modular_arithmetic},
                                                                  {"mqar", recall},
                                                                  {"mqar-update", recall},
                                                                  {"n-back", n_back},
                                                                  {"parity", parity},
                                                                  {"passkey", passkey},
                                                                  {"selective-copy", selective_copy},
                                                                  {"string-map", string_map}};

struct Case {
  const char *task, *settings;
  const char* checksum;  // of 40 sequences of every split, with the splits' names, counts and lengths
};

const std::vector<Case> cases{
    {"addition", "", "6856cc31"},
    {"addition", "order=little base=2 max-digits=7", "fc218f70"},
    {"addition", "equal=true", "7c8c4ab6"},
    {"counting", "max-tokens=4000", "f31d42ea"},
    {"counting", "max-tokens=4000 vars=3 pass-weight=0", "03622131"},
    {"counting", "max-tokens=4000 vars=26", "b01cd202"},
    {"cycle-navigation", "", "40251dfd"},
    {"cycle-navigation", "every=true max-length=12", "4c87445c"},
    {"even-pairs", "", "a405c7a4"},
    {"even-pairs", "every=true max-length=12", "52c58e76"},
    {"flip-flop", "", "68356c15"},
    {"flip-flop", "length=4", "431ef3aa"},
    {"flip-flop", "length=64 loss=all p-ignore=0.5", "24e28145"},
    {"group-word", "", "657029af"},
    {"group-word", "group=s5 length=40", "b849488e"},
    {"group-word", "group=z60", "d9f34a69"},
    {"group-word", "group=a4xz5 length=40", "478a4fec"},
    {"group-word", "group=s3 length=8 mix=true", "a817b8ed"},
    {"last-sentence", "", "8189d706"},
    {"last-sentence", "back=4", "f8f69628"},
    {"last-sentence", "back-max=3", "f830f8a0"},
    {"last-x", "", "128b698c"},
    {"last-x", "loss=last", "22feec02"},
    {"missing-duplicate", "", "03ec671a"},
    {"modular-arithmetic", "", "fcfd58a1"},
    {"modular-arithmetic", "form=brackets", "a0442521"},
    {"mqar", "pairs=16", "356cd934"},
    {"mqar", "vocabulary=256 pairs=8 length=64 filler=random", "b4c4f1d4"},
    {"mqar-update", "pairs=9 updates=4", "50cc4e8a"},
    {"mqar-update", "vocabulary=256 pairs=8 length=64 updates=3", "35e7fd0e"},
    {"n-back", "", "7a8ee01d"},
    {"n-back", "keys=6 values=8 pairs=40 n=3", "71355aaa"},
    {"parity", "", "b5c6da8e"},
    {"parity", "every=true max-length=12", "7f3045f2"},
    {"passkey", "", "1a9f8c89"},
    {"passkey", "statements=1 length=64", "50c465ac"},
    {"selective-copy", "", "5f6babff"},
    {"selective-copy", "non-blanks=1 blanks=0", "13f084b2"},
    {"string-map", "", "08f824e6"},
    {"string-map", "map=reverse", "86e74b46"},
    {"string-map", "map=duplicate max-length=8", "dfa5fa48"},
    {"string-map", "map=sort", "81f6dd39"},
};

constexpr std::int64_t sequences = 40;

void expect_answers(const Given& given, const Answers& answers) {
  const Example& example = given.example;
  for (std::size_t t = 0; t < answers.scored.size(); ++t) {
    const bool is_scored = answers.scored[t] != none;
    const std::int32_t also = t < answers.also_trained.size() ? answers.also_trained[t] : none;
    ASSERT_EQ(example.score_mask[t], is_scored) << t;
    ASSERT_EQ(example.loss_mask[t], is_scored || also != none) << t;
    if (example.loss_mask[t] != 0) {
      ASSERT_EQ(example.targets[t], is_scored ? answers.scored[t] : also) << t;
    }
    if (answers.key != none) {
      ASSERT_EQ(example.keys[t], answers.key);
    }
  }
}

TEST(ToyTasks, AnswersAreThoseOfTheReferences) {
  for (const auto& [name, text, checksum] : cases) {
    const Settings settings = settings_of(text);
    const auto task = make_task(name, settings);
    testing::expect_well_formed(*task, 5);
    for (const Split& split : task->splits()) {
      for (std::int64_t index = 0; index < sequences; ++index) {
        const Example example = task->example(split.name, index);
        SCOPED_TRACE(formatted("{} {} {} {}: {}", name, text, split.name, index, task->text(example)));
        const Given given{*task, settings, split.name, example};
        expect_answers(given, references.at(name)(given));
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// The results of kept runs depend on every bit of the sequences.
TEST(ToyTasks, SequencesNeverChange) {
  std::set<std::string> tasks;
  for (const auto& [name, settings, checksum] : cases) {
    const auto task = make_task(name, settings_of(settings));
    std::string all;
    const auto add = [&](const auto& numbers) {
      for (const auto number : numbers) all += formatted(" {}", static_cast<std::int64_t>(number));
    };
    for (const Split& split : task->splits()) {
      all += formatted("{} {} {}", split.name, split.count, split.length);
      for (std::int64_t index = 0; index < sequences; ++index) {
        const Example example = task->example(split.name, index);
        all += task->text(example);
        add(example.targets);
        add(example.loss_mask);
        add(example.score_mask);
        add(example.keys);
      }
    }
    EXPECT_EQ(checksum_text(crc32c(all)), checksum) << name << " " << settings;
    tasks.insert(name);
  }
  for (const TaskEntry* entry : task_registry()) {
    EXPECT_TRUE(entry->reads_files || tasks.contains(entry->name)) << entry->name << " has no row in `cases`";
  }
}

TEST(ToyTasks, TheirTextsAreReadable) {
  const auto first = [](const char* task, const char* settings, const char* split) {
    return testing::text_of(*make_task(task, settings_of(settings)), split, 0);
  };
  EXPECT_EQ(first("flip-flop", "length=32", "ood-dense"), "w1r1r1r1w0w1w0r0r0w0r0w0r0w0r0r0");
  EXPECT_EQ(first("counting", "vars=3 max-operations=12 pass-weight=0", "train"),
            "a = 0 ; a ++; a ++; b = 0 ; a ++; a ++; b ++; b ++; a ++; c = 0 ; print b 2");
  EXPECT_EQ(first("selective-copy", "non-blanks=5 blanks=4", "train"), "CM___AE_HCMAEH");
  // Unfinished sequences, and answers in tags.
  const auto encoded = [](const char* task, const char* settings, const char* text) {
    return make_task(task, settings_of(settings))->encode(text);
  };
  EXPECT_EQ(encoded("flip-flop", "", "w0i1r"), (Tokens{0, 3, 2, 4, 1}));
  EXPECT_TRUE(encoded("flip-flop", "", "").empty());
  EXPECT_EQ(encoded("group-word", "group=s3", "^ 3:3 1:5 5"), (Tokens{6, 3, 1, 5}));
  EXPECT_EQ(testing::error_of([&] { encoded("flip-flop", "", "w0i2r0"); }),
            "[encode] symbol 4 is '2', which is none of w r i 0 1");
  EXPECT_EQ(testing::error_of([&] { encoded("flip-flop", "", "w\x1b"); }),
            "[encode] symbol 2 is '\\x1b', which is none of w r i 0 1");
}

TEST(ToyTasks, LongProgramsLoseTheirBeginning) {
  const auto whole = make_task("counting", {{"max-tokens", "4000"}}), cut = make_task("counting");
  int longer = 0;
  for (std::int64_t index = 0; index < 100; ++index) {
    const Example full = whole->example("train", index), kept = cut->example("train", index);
    longer += full.tokens.size() > 511;
    ASSERT_EQ(kept.tokens.size(), std::min<std::size_t>(511, full.tokens.size()));
    ASSERT_EQ(kept.tokens, part(full.tokens, full.tokens.size() - kept.tokens.size(), full.tokens.size()));
    ASSERT_EQ(kept.targets.back(), full.targets.back());
  }
  EXPECT_GT(longer, 2);  // 14%
}

}  // namespace tally::toy_answers_test

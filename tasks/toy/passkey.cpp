// Passkey (after Mohtashami and Jaggi 2023, "Landmark Attention", arXiv 2305.16300), over bytes and among decoys:
// recall the number that belongs to a letter.
//
// A sequence of T bytes has D statements [X=ddddd] of different letters X, uniform, with five uniform digits each, and
// filler of R = T - 9D - 8 bytes. At the end come [X= of one of the D letters, uniform, and its five digits. The filler
// is cut from the endless repetition of a sentence at a uniform phase. The statements are, in order, at D positions of
// the filler that are independent and uniform in 0..R. With T = 60, D = 2:
//
//   rolls in[K=20417] over sand. [Q=00351]a gull cries[K=20417
//
// All bytes are fed, and position t predicts byte t+1. Loss and score are on the last five digits. A guess is wrong in
// 90% of them. The digits of the last statement are right in 1/D + (1 - 1/D)/10. ood-decoys has 2D statements, ood-long
// 2T bytes, ood-far 4T. Errors are broken down by depth, the distance from the question to the statement asked for, in
// quarters of T: 1 is the nearest.
//
// The usual passkey has one key and no decoys, which is D = 1. Copying any digits solves it, so it only tests range.
// Filler must not contain digits or brackets.
#include <algorithm>

#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

constexpr std::string_view sentence = "a gull cries and the long grey wave rolls in over sand. ";
constexpr std::int64_t digits = 5;
constexpr std::int64_t statement_bytes = digits + 4;
constexpr std::int64_t question_bytes = digits + 3;
constexpr std::int64_t letter_count = 26;

struct PasskeyOptions final : OptionsOf<PasskeyOptions> {
  std::int64_t length = 128;
  std::int64_t statements = 2;
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("length", length, "bytes T of train and in-distribution; 2T in ood-long, 4T in ood-far", 32,
                    1 << 20);
    visitor.integer("statements", statements, "statements D, decoys included; 2D in ood-decoys", 1, letter_count / 2);
    visitor.integer("eval-count", eval_count, "sequences of each evaluation split", 1);
  }
};

struct PasskeyLaw {
  std::int64_t length, statements;
  std::int64_t filler() const { return length - statement_bytes * statements - question_bytes; }
};

class Passkey final : public ToyTask<PasskeyLaw> {
 public:
  Passkey(const PasskeyOptions& options, const Seeds& seeds)
      : ToyTask({"passkey", bytes(), Writing::symbols, "depth"}, seeds) {
    const auto add = [&](const char* name, std::int64_t count, const PasskeyLaw& law) {
      check(law.filler() >= 0, "passkey", "{} with {} statements needs a length of {}, got {}", name, law.statements,
            law.length - law.filler(), law.length);
      add_split({name, formatted("{} statements in {} bytes", law.statements, law.length), count, law.length}, law);
    };
    const std::int64_t length = options.length, statements = options.statements, count = options.eval_count;
    add("train", 0, {length, statements});
    add("in-distribution", count, {length, statements});
    add("ood-decoys", count, {length, 2 * statements});
    add("ood-long", count, {2 * length, statements});
    add("ood-far", count, {4 * length, statements});
  }

 private:
  // The id of a byte is its value. Bytes that are not printable have names like \x0a.
  static std::vector<std::string> bytes() {
    std::vector<std::string> names;
    for (int byte = 0; byte < 256; ++byte) {
      constexpr const char* hexadecimal = "0123456789abcdef";
      const bool printed = ' ' <= byte && byte <= '~';
      names.push_back(printed ? std::string(1, static_cast<char>(byte))
                              : std::string("\\x") + hexadecimal[byte / 16] + hexadecimal[byte % 16]);
    }
    return names;
  }

  Example draw(Rng& rng, const PasskeyLaw& law) const override {
    const std::int64_t filler = law.filler();
    const auto count = static_cast<std::size_t>(law.statements);
    const auto asked = rng.below(static_cast<std::uint32_t>(count));
    std::size_t phase = rng.below(static_cast<std::uint32_t>(sentence.size()));
    std::vector<std::int64_t> cuts(count);
    for (std::int64_t& cut : cuts) cut = uniform_in(rng, 0, filler);
    std::sort(cuts.begin(), cuts.end());

    std::string text, question;
    std::size_t asked_at = 0;
    const auto fill = [&](std::int64_t bytes) {
      for (std::int64_t i = 0; i < bytes; ++i) text += sentence[phase++ % sentence.size()];
    };
    const std::vector<std::int32_t> of = distinct(rng, law.statements, letter_count);
    for (std::size_t i = 0; i < count; ++i) {
      fill(cuts[i] - (i > 0 ? cuts[i - 1] : 0));
      std::string statement{'[', static_cast<char>('A' + of[i]), '='};
      for (std::int64_t digit = 0; digit < digits; ++digit) statement += static_cast<char>('0' + rng.below(10));
      if (i == asked) {
        asked_at = text.size();
        question = statement;
      }
      text += statement + "]";
    }
    fill(filler - cuts.back());
    text += question;

    Example example = next_token_example({text.begin(), text.end()});
    const std::size_t answer_at = text.size() - static_cast<std::size_t>(digits);
    for (std::size_t t = answer_at - 1; t + 1 < text.size(); ++t) example.loss_mask[t] = example.score_mask[t] = 1;
    set_key(example, static_cast<std::int64_t>(1 + 4 * (answer_at - asked_at) / text.size()));
    return example;
  }
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    passkey, PasskeyOptions, Passkey, "give the number of a letter, far back among decoys",
    "Bytes of a repeated sentence with D statements [X=ddddd] at uniform positions, then [X= of one of them, and its "
    "five\n"
    "digits, on which loss and score are. ood-decoys has 2D statements, ood-long twice the bytes, ood-far four times.\n"
    "Errors are broken down by depth: quarters of the length from the question back to the statement, 1 the nearest.",
    "after Mohtashami and Jaggi 2023, arXiv 2305.16300");

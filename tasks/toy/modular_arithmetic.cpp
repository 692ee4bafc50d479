// Modular arithmetic (Delétang et al. 2023, "Neural Networks and the Chomsky Hierarchy", arXiv 2207.02098): the value
// of an expression mod 5.
//
// simple:    digits 0..4 with + - * between them, all uniform; * binds before + and -. There are n symbols, n odd: an
//            even draw becomes n - 1.
// brackets:  exactly n symbols. n = 1 is d, 2 is -d, 3 is (d), 4 is (-d). A longer one is (L op R), with the length of
//            L uniform in 1..n-4, R the rest, and op uniform.
//
//   3+4*2-0=1          ((-3)*(2-4))=1
//
// Then comes `=`, at which the value is asked for. n is uniform in 1..N in training, and larger than N in ood-long and
// ood-far. The majority answer, 0, is wrong in 79% of the simple form for N = 20 and in 80% for longer prompts, where
// products of many digits are rare. With brackets it is wrong in 75% and 71%. Answering with only the last product is
// right in 34.5% of the simple form for N = 20 and in 20% for longer prompts. Errors are broken down by length, which
// is odd in the simple form: "40" means 39, "500" means 499.
//
// In the released generator the simple form keeps its operators in an iterator that can be read only once. It is empty
// when a second length is generated.
#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct ModularArithmeticOptions final : OptionsOf<ModularArithmeticOptions> {
  LengthOptions lengths;
  std::string form = "simple";

  void visit(OptionVisitor& visitor) override {
    lengths.visit(visitor);
    visitor.choice("form", form, {"simple", "brackets"}, "digits and operators, or nested brackets as well");
  }
};

class ModularArithmetic final : public LengthTask {
 public:
  ModularArithmetic(const ModularArithmeticOptions& options, const Seeds& seeds)
      : LengthTask(
            {"modular-arithmetic", {"0", "1", "2", "3", "4", "+", "-", "*", "(", ")", "="}, Writing::symbols, "length"},
            options.lengths, seeds),
        brackets_(options.form == "brackets") {}

 private:
  static constexpr std::int32_t modulus = 5;
  enum Symbol : std::int32_t { plus = modulus, minus, times, open, close, equals };

  static std::int32_t apply(std::int32_t operation, std::int32_t a, std::int32_t b) {
    if (operation == times) return a * b % modulus;
    return (operation == plus ? a + b : a - b + modulus) % modulus;
  }
  static std::int32_t draw_digit(Rng& rng) { return static_cast<std::int32_t>(rng.below(modulus)); }
  static std::int32_t draw_operation(Rng& rng) { return plus + static_cast<std::int32_t>(rng.below(3)); }

  // Both functions append an expression of n symbols to `tokens` and return its value.
  static std::int32_t write_simple(Rng& rng, std::int64_t n, std::vector<std::int32_t>& tokens) {
    std::int32_t product = draw_digit(rng), sum = 0, sign = plus;  // sum of the complete terms
    tokens.push_back(product);
    for (std::int64_t i = 1; i < n; i += 2) {
      const std::int32_t operation = draw_operation(rng), digit = draw_digit(rng);
      tokens.insert(tokens.end(), {operation, digit});
      if (operation == times) {
        product = apply(times, product, digit);
      } else {
        sum = apply(sign, sum, product);
        sign = operation;
        product = digit;
      }
    }
    return apply(sign, sum, product);
  }
  static std::int32_t write_brackets(Rng& rng, std::int64_t n, std::vector<std::int32_t>& tokens) {
    const bool enclosed = n > 2;
    if (enclosed) tokens.push_back(open);
    std::int32_t value = 0;
    if (n <= 4) {
      const bool negative = n % 2 == 0;
      if (negative) tokens.push_back(minus);
      tokens.push_back(draw_digit(rng));
      value = negative ? apply(minus, 0, tokens.back()) : tokens.back();
    } else {
      const std::int64_t left = uniform_in(rng, 1, n - 4);
      const std::int32_t operation = draw_operation(rng), a = write_brackets(rng, left, tokens);
      tokens.push_back(operation);
      value = apply(operation, a, write_brackets(rng, n - 3 - left, tokens));
    }
    if (enclosed) tokens.push_back(close);
    return value;
  }

  Example draw_length(Rng& rng, std::int64_t n) const override {
    if (!brackets_ && n % 2 == 0) --n;
    std::vector<std::int32_t> tokens;
    const std::int32_t value = brackets_ ? write_brackets(rng, n, tokens) : write_simple(rng, n, tokens);
    return one_answer(std::move(tokens), equals, value);
  }

  bool brackets_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    modular_arithmetic, ModularArithmeticOptions, ModularArithmetic, "the value of an expression mod 5",
    "An expression of n symbols, then `=`; the answer is its value mod 5. Simple: digits 0 to 4 with + - * between\n"
    "them, n odd. Brackets: nested (L op R) down to d, -d, (d), (-d). Train and in-distribution have n up to N,\n"
    "ood-long up to 5N/2, ood-far up to 25N/2. Loss and score are on the answer. Errors are broken down by length.",
    "Delétang et al. 2023, arXiv 2207.02098");

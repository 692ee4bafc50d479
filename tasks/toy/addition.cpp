// Addition, digit by digit (Kazemnejad et al. 2023, arXiv 2305.19466; Delétang et al. 2023, arXiv 2207.02098, with base
// 2; TAPE, arXiv 2501.00712, least significant digit first).
//
//   a + b = c ;        64+128=192;   or, least significant digit first,   46+821=291;
//
// a has p digits and b has q, both uniform in 1..N (option `equal`: q = p); in ood-long they are uniform in N+1..2N.
// Digits are uniform in base B. The first digit of a longer number is not 0, and c has no leading zeros. All symbols
// are fed, and position t predicts symbol t+1. Loss and score are on the digits of c and on the end `;`. Reports show
// the sequence error rate. Adding column by column without carries is right in 22.6% of the sequences for N = 8, in
// 13.0% with equal p and q, and in 0.2% for 9..16 digits. Errors are broken down by the digits of the longer operand.
//
// The published generators differ. The first paper's generator keeps duplicates, so its sums of one digit are the same
// in training and validation. The second paper's draws a number below 2^l and pads it with zeros, and counts the zeros
// after the end in the loss. It never draws all ones if both operands have at most two digits together.
#include <algorithm>

#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

struct AdditionOptions final : OptionsOf<AdditionOptions> {
  std::int64_t max_digits = 8;
  std::int64_t base = 10;
  std::string order = "big";
  bool equal = false;
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("max-digits", max_digits, "most digits N of an operand; ood-long has N+1 to 2N", 1, 1 << 16);
    visitor.integer("base", base, "base of the numbers", 2, 10);
    visitor.choice("order", order, {"big", "little"}, "first digit: the most or the least significant one");
    visitor.flag("equal", equal, "both operands have the same number of digits");
    visitor.integer("eval-count", eval_count, "sequences of each evaluation split", 1);
  }
};

using Digits = std::vector<std::int32_t>;  // least significant first

class Addition final : public ToyTask<LengthRange> {
 public:
  Addition(const AdditionOptions& options, const Seeds& seeds)
      : ToyTask({"addition", symbols(options.base), Writing::symbols, "digits", true}, seeds),
        base_(static_cast<std::int32_t>(options.base)),
        big_(options.order == "big"),
        equal_(options.equal) {
    const auto add = [&](const char* name, std::int64_t count, const LengthRange& digits) {
      add_split({name, formatted("{} to {} digits", digits.least, digits.most), count, 3 * digits.most + 4}, digits);
    };
    const std::int64_t n = options.max_digits;
    add("train", 0, {1, n});
    add("in-distribution", options.eval_count, {1, n});
    add("ood-long", options.eval_count, {n + 1, 2 * n});
  }

 private:
  static std::vector<std::string> symbols(std::int64_t base) {
    std::vector<std::string> names = numbered("", base);
    append(names, {"+", "=", ";"});
    return names;
  }

  Digits draw_number(Rng& rng, std::int64_t digits) const {
    Digits number;
    for (std::int64_t i = 0; i < digits; ++i) {
      const std::int32_t least = i + 1 == digits && digits > 1 ? 1 : 0;
      number.push_back(static_cast<std::int32_t>(uniform_in(rng, least, base_ - 1)));
    }
    return number;
  }

  Digits sum(const Digits& a, const Digits& b) const {
    Digits result;
    std::int32_t carry = 0;
    for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      carry += (i < a.size() ? a[i] : 0) + (i < b.size() ? b[i] : 0);
      result.push_back(carry % base_);
      carry /= base_;
    }
    if (carry > 0) result.push_back(carry);
    return result;
  }

  Example draw(Rng& rng, const LengthRange& digits) const override {
    const std::int32_t plus = base_, equals = base_ + 1, end = base_ + 2;
    const std::int64_t p = uniform_in(rng, digits.least, digits.most);
    const std::int64_t q = equal_ ? p : uniform_in(rng, digits.least, digits.most);
    Digits a = draw_number(rng, p), b = draw_number(rng, q), c = sum(a, b);
    if (big_) {
      for (Digits* number : {&a, &b, &c}) std::reverse(number->begin(), number->end());
    }
    std::vector<std::int32_t> prompt = a;
    prompt.push_back(plus);
    prompt.insert(prompt.end(), b.begin(), b.end());
    prompt.push_back(equals);
    c.push_back(end);
    Example example = prompt_and_outputs(std::move(prompt), c);
    set_key(example, std::max(p, q));
    return example;
  }

  std::int32_t base_;
  bool big_, equal_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(
    addition, AdditionOptions, Addition, "add two numbers digit by digit",
    "a + b = c ; with 1 to N digits in each operand, N+1 to 2N in ood-long; base, order of digits and equal numbers\n"
    "of digits are options. Loss and score are on the digits of c and the end; reports give the share of wrong\n"
    "sequences. Errors are broken down by digits of the longer operand.",
    "Kazemnejad et al. 2023, arXiv 2305.19466; Delétang et al. 2023, arXiv 2207.02098");

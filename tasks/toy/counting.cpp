// Counting (CoPE, arXiv 2405.18719, section 5.3, and the authors' released generator): run a program, print a variable.
//
// A program is n operations, n uniform in 3..512, each drawn with weights
//
//   set 1        a = 0 ;    a variable uniform among the first V letters
//   increment 7  a ++;      a variable uniform among those already set
//   pass w_pass  pass;
//
// An impossible operation (an increment with nothing set, or beyond 10) is drawn again, including its kind. Then come
// the question, `print a` with a uniform among the variables set, and the answer, one token 0..10:
//
//   a = 0 ; pass; a ++; pass; print a 1
//
// A program that sets nothing is drawn again, including its n. So is a program with an operation that is still
// impossible after 100 draws. Tokens are words separated by blanks. A sequence longer than 512 tokens, including
// question and answer, is cut to its last 512. The model gets all tokens except the answer. The last position predicts
// it, and has the only loss and score.
//
// Errors are broken down by the answer. Large answers are rare if there are many passes or programs are short. A model
// may then count correctly and still never give an answer that was rare in training.
#include <algorithm>
#include <array>
#include <optional>

#include "core/error.hpp"
#include "tasks/data/toy_task.hpp"

namespace tally {
namespace {

constexpr std::int64_t most_variables = 26;
constexpr std::int32_t most_value = 10;

struct CountingOptions final : OptionsOf<CountingOptions> {
  std::int64_t vars = 1;
  std::int64_t pass_weight = 50;
  std::int64_t min_operations = 3;
  std::int64_t max_operations = 512;
  std::int64_t max_tokens = 512;
  std::int64_t train_count = 10'000;
  std::int64_t eval_count = 1000;

  void visit(OptionVisitor& visitor) override {
    visitor.integer("vars", vars, "variables", 1, most_variables);
    visitor.integer("pass-weight", pass_weight, "weight of pass; set has 1 and increment 7", 0, 10'000);
    visitor.integer("min-operations", min_operations, "fewest operations of a program", 1, 1 << 20);
    visitor.integer("max-operations", max_operations, "most operations of a program", 1, 1 << 20);
    visitor.integer("max-tokens", max_tokens, "longest sequence in tokens, with question and answer", 4);
    visitor.integer("train-count", train_count, "programs of the fixed training set", 1, 1 << 22);
    visitor.integer("eval-count", eval_count, "programs of each evaluation split", 1);
  }
};

// The splits differ in the weight of `pass`.
class Counting final : public ToyTask<std::int64_t> {
 public:
  Counting(const CountingOptions& options, const Seeds& seeds)
      : ToyTask({"counting", words(options.vars), Writing::words, "answer"}, seeds), options_(options) {
    check(options.min_operations <= options.max_operations, "counting",
          "min-operations {} is more than max-operations {}", options.min_operations, options.max_operations);
    const auto add = [&](const char* name, std::int64_t count, std::int64_t pass_weight) {
      add_split({name, formatted("pass weight {}", pass_weight), count, options.max_tokens - 1}, pass_weight);
    };
    add("train", options.train_count, options.pass_weight);
    add("validation", options.eval_count, options.pass_weight);
    add("test", options.eval_count, options.pass_weight);
    if (options.vars == 1) {
      add("ood-long", options.eval_count, 100);
      add("ood-short", options.eval_count, 10);
    }
  }

 private:
  // Token ids; 0..10 are the numbers.
  enum Word : std::int32_t { equals = most_value + 1, semicolon, increment, pass, print, first_variable };

  struct Program {
    std::vector<std::int32_t> tokens;  // including the question
    std::int32_t answer = 0;
  };

  // The variables of a running program.
  struct Variables {
    std::array<std::int32_t, most_variables> values{};
    std::vector<std::int32_t> set;  // in the order in which they were first set
  };

  static std::vector<std::string> words(std::int64_t variables) {
    std::vector<std::string> all = numbered("", most_value + 1);
    append(all, {"=", ";", "++;", "pass;", "print"});
    append(all, letters('a', variables));
    return all;
  }

  Example draw(Rng& rng, const std::int64_t& pass_weight) const override {
    std::optional<Program> program;
    while (!program) program = draw_program(rng, static_cast<std::uint32_t>(pass_weight));
    std::vector<std::int32_t>& tokens = program->tokens;
    const auto most_fed = static_cast<std::size_t>(options_.max_tokens - 1);
    if (tokens.size() > most_fed) {
      tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(most_fed));
    }
    Example example = tag_example(std::move(tokens));
    ask(example, example.tokens.size() - 1, program->answer);
    set_key(example, program->answer);
    return example;
  }

  // Nothing for a program that must be drawn again.
  std::optional<Program> draw_program(Rng& rng, std::uint32_t pass_weight) const {
    const auto range = static_cast<std::uint32_t>(options_.max_operations - options_.min_operations + 1);
    const std::int64_t operations = options_.min_operations + rng.below(range);
    Program program;
    Variables variables;
    for (std::int64_t i = 0; i < operations; ++i) {
      constexpr int most_draws = 100;
      bool possible = false;
      for (int draw = 0; draw < most_draws && !possible; ++draw) {
        possible = draw_operation(rng, pass_weight, variables, program.tokens);
      }
      if (!possible) return std::nullopt;
    }
    if (variables.set.empty()) return std::nullopt;
    const std::int32_t variable = draw_set_variable(rng, variables);
    program.tokens.push_back(print);
    program.tokens.push_back(first_variable + variable);
    program.answer = variables.values[static_cast<std::size_t>(variable)];
    return program;
  }

  // Draws an operation, runs it and appends it. Returns false, with nothing changed, if it is impossible.
  bool draw_operation(Rng& rng, std::uint32_t pass_weight, Variables& variables,
                      std::vector<std::int32_t>& tokens) const {
    constexpr std::uint32_t set_weight = 1;
    constexpr std::uint32_t increment_weight = 7;
    const std::uint32_t kind = rng.below(set_weight + increment_weight + pass_weight);
    if (kind < set_weight) {
      const auto variable = static_cast<std::int32_t>(rng.below(static_cast<std::uint32_t>(options_.vars)));
      const auto known = std::find(variables.set.begin(), variables.set.end(), variable);
      if (known == variables.set.end()) variables.set.push_back(variable);
      variables.values[static_cast<std::size_t>(variable)] = 0;
      tokens.insert(tokens.end(), {first_variable + variable, equals, 0, semicolon});
    } else if (kind < set_weight + increment_weight) {
      if (variables.set.empty()) return false;
      const std::int32_t variable = draw_set_variable(rng, variables);
      std::int32_t& value = variables.values[static_cast<std::size_t>(variable)];
      if (value == most_value) return false;
      ++value;
      tokens.insert(tokens.end(), {first_variable + variable, increment});
    } else {
      tokens.push_back(pass);
    }
    return true;
  }

  static std::int32_t draw_set_variable(Rng& rng, const Variables& variables) {
    return variables.set[rng.below(static_cast<std::uint32_t>(variables.set.size()))];
  }

  CountingOptions options_;
};

}  // namespace
}  // namespace tally

TALLY_TASK(counting, CountingOptions, Counting, "run a program of set, increment and pass, then print a variable",
           "Operations `a = 0 ;`, `a ++;`, `pass;` drawn with weights 1, 7 and the pass weight; values stay within\n"
           "0-10. Then `print a` and the answer. Tokens are words; long programs are cut at the beginning. Only the\n"
           "answer is trained on and scored, and errors are broken down by it. The training programs are a fixed\n"
           "set; ood-long and ood-short (more and fewer passes) exist for one variable.",
           "Golovneva et al. 2024 (CoPE), arXiv 2405.18719, section 5.3");

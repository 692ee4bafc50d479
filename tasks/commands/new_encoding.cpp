// tally new-encoding: a file to begin with, which builds, passes the tests and does nothing yet.
#include <algorithm>
#include <cctype>
#include <memory>

#include "core/error.hpp"
#include "nn/encoding/encoding.hpp"
#include "tasks/command_line/commands.hpp"

namespace tally {
namespace {

// Of a bias, a rotation and whatever else fits a hook. STEM, TITLE and NAME are put in.
constexpr std::string_view of_hooks =
    R"(// What it does, in a sentence (where it was published). For query i and key j <= i:
//   l_ij = s_ij
#include "autograd/ops.hpp"
#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

struct TITLEEncodingOptions final : OptionsOf<TITLEEncodingOptions> {
  // double start = 0.1;  and in `visit`: visitor.real("start", start, "what it is, for the help", 0);
  void visit(OptionVisitor&) override {}
};

class TITLEEncoding final : public Encoding {
 public:
  // A parameter: setup.parameter("rate", {setup.heads}, Fill::constant(options.start), Scope::layer)
  TITLEEncoding(const EncodingSetup&, const TITLEEncodingOptions&) {}

  // Before the product of queries and keys there is `rotate`, after the weights `finish`: nn/encoding/encoding.hpp has all hooks,
  // nn/position/README.md says which one a formula needs.
  void score(const AttentionInput& in, Score& score) const override {
    // A bias of distance: score.biases.push_back(Toeplitz{numbers});  [H, distances], from in.distances()
    (void)in, (void)score;
  }
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(STEM, TITLEEncodingOptions, TITLEEncoding, "nothing yet", "l_ij = s_ij", "none yet");
)";

// For a score modification.
constexpr std::string_view of_score_mod =
    R"(// What it does, in a sentence (where it was published). For query i and key j <= i:
//   g_ij = sigmoid(s_ij),  p_ij = sum_{m=j..i} g_im,  l_ij = s_ij - r_h p_ij;  with r = 0 it does nothing yet
#include "autograd/score_mod.hpp"

namespace tally {
namespace {

// Compiled for the CPU, for CUDA and on tensors; its derivatives come from the same text. nn/position/contextual.md
// leads through one; core/attention/score_mod.hpp has all functions and inputs.
struct TITLEScore {
  static constexpr int heads = 1;  // number of head<n>(p); `rows`: of row<n>(p), scalars of the query
  // Is summed from the query down to the key: p.sum.
  static constexpr auto gate(const auto& p) { return sigmoid(p.s); }
  static constexpr auto logit(const auto& p) { return p.s - head<0>(p) * p.sum; }
};

}  // namespace
}  // namespace tally

TALLY_SCORE_MOD(STEM, TITLEScore);

#ifndef TALLY_SCORE_MOD_ONLY

#include "nn/encoding/encoding.hpp"

namespace tally {
namespace {

struct TITLEEncodingOptions final : OptionsOf<TITLEEncodingOptions> {
  double start = 0;

  void visit(OptionVisitor& visitor) override {
    visitor.real("start", start, "what a step of the sum takes off, for every head at the start");
  }
};

class TITLEEncoding final : public Encoding {
 public:
  TITLEEncoding(const EncodingSetup& setup, const TITLEEncodingOptions& options)
      : rate_(setup.parameter("rate", {setup.heads, 1}, Fill::constant(options.start), Scope::layer)) {}

  void score(const AttentionInput&, Score& score) const override {
    score.add_score_mod({.mod = &score_mod_STEM, .heads = rate_});
  }

 private:
  Tensor rate_;  // r [H, 1]
};

}  // namespace
}  // namespace tally

TALLY_ENCODING(STEM, TITLEEncodingOptions, TITLEEncoding, "nothing yet", "l_ij = s_ij - r_h p_ij", "none yet");

#endif
)";

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// "my-idea" -> "MyIdea"
std::string title_of(const std::string& name) {
  std::string title;
  for (std::size_t n = 0; n < name.size(); ++n) {
    if (name[n] == '-') continue;
    const bool first = n == 0 || name[n - 1] == '-';
    title += first ? static_cast<char>(std::toupper(static_cast<unsigned char>(name[n]))) : name[n];
  }
  return title;
}

void check_name(const std::string& name) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool known = std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '-'; });
  const bool good = known && !name.empty() && letter(name.front()) && name.back() != '-' &&
                    name.find("--") == std::string::npos && name.size() <= 40;
  check(good, "new-encoding", "'{}' is no name for an encoding: small letters, digits and single '-' between them",
        name);
  const auto same = [&](const EncodingEntry* entry) { return entry->name == name; };
  check(std::ranges::none_of(encoding_registry(), same), "new-encoding",
        "there is an encoding {} already: nn/position/{}.cpp", name, replaced(name, "-", "_"));
}

}  // namespace

std::function<Result()> declare_new_encoding(CommandLine& line) {
  const auto name = std::make_shared<std::string>();
  const auto score_mod = std::make_shared<bool>(false);
  line.add("NAME", name.get(), "of the encoding: small letters, digits and '-'", {.required = true});
  line.add("--score-mod", score_mod.get(), "a formula of the pair and of a sum along the keys");
  line.footer = "The file is printed: tally new-encoding my-idea > nn/position/my_idea.cpp; the next build finds it.";
  return [name, score_mod] {
    as_usage([&] { check_name(*name); });
    std::string text(*score_mod ? of_score_mod : of_hooks);
    text = replaced(replaced(text, "TITLE", title_of(*name)), "STEM", replaced(*name, "-", "_"));
    return Result{.value = JsonValue::object({{"name", *name}, {"text", text}}), .text = text};
  };
}

}  // namespace tally

// Any bytes are cut into pieces that are the bytes again, the same compiled and interpreted, and come back from their
// tokens; the second half of longer ones is a pattern, which may be refused.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tasks/text/encoder.hpp"
#include "tasks/text/normal_form.hpp"
#include "tasks/text/prepare/bpe_training.hpp"

namespace {

// A pattern and a matcher of it, both ways, for all inputs: making them takes longer than matching.
struct Pattern {
  explicit Pattern(std::string_view name) : compiled(name), interpreted(name, false) {}
  tally::SplitPattern compiled, interpreted;
  tally::Splitter by_code{compiled}, by_steps{interpreted};
};

std::string cut(tally::Splitter& splitter, std::string_view text) {
  std::string joined, marked;
  splitter.split(text, [&](std::string_view piece) {
    if (piece.empty()) std::abort();
    joined += piece;
    marked.append(piece).append("|");
  });
  if (joined != text) std::abort();
  return marked;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static Pattern gpt2("gpt2"), llama3("llama3"), cl100k("cl100k");
  for (Pattern* pattern : {&gpt2, &llama3, &cl100k}) {
    if (cut(pattern->by_code, text) != cut(pattern->by_steps, text)) std::abort();
  }
  tally::PieceCounts counts;
  tally::count_pieces(gpt2.by_code, text, counts);
  const tally::Tokenizer tokenizer(tally::train_bpe(counts, {.vocabulary = 300}), false);
  if (tokenizer.decode(tally::Encoder(tokenizer).encode(text)) != text) std::abort();
  if (tally::count_words(text) > static_cast<std::int64_t>(size)) std::abort();
  try {
    const tally::SplitPattern pattern(text.substr(size / 2));
    tally::Splitter splitter(pattern);
    cut(splitter, text.substr(0, size / 2));
  } catch (const tally::Error&) {
  }
  return 0;
}

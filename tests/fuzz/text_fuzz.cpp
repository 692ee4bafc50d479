// Any bytes are cut into pieces that are the bytes again, the same compiled and interpreted, and come back from their
// tokens; the second half of longer ones is a pattern, which may be refused.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tasks/text/bpe_training.hpp"
#include "tasks/text/encoder.hpp"
#include "tasks/text/words.hpp"

namespace {

struct Patterns {
  explicit Patterns(std::string_view name) : compiled(name), interpreted(name, false) {}
  tally::SplitPattern compiled, interpreted;
};

std::string cut(const tally::SplitPattern& pattern, std::string_view text) {
  std::string joined, marked;
  tally::Splitter(pattern).split(text, [&](std::string_view piece) {
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
  static const Patterns gpt2("gpt2"), llama3("llama3"), cl100k("cl100k");  // compiling takes longer than matching
  for (const Patterns* patterns : {&gpt2, &llama3, &cl100k}) {
    if (cut(patterns->compiled, text) != cut(patterns->interpreted, text)) std::abort();
  }
  tally::PieceCounts counts;
  const tally::SplitPattern& pattern = gpt2.compiled;
  tally::count_pieces(pattern, {&text, 1}, counts);
  const tally::Tokenizer tokenizer(tally::train_bpe(counts, {.vocabulary = 300}));
  if (tokenizer.decode(tally::Encoder(tokenizer).encode(text)) != text) std::abort();
  tally::WordCounter words;
  words.add(text.substr(0, size / 2));
  words.add(text.substr(size / 2));
  if (words.words() != tally::count_words(text)) std::abort();
  try {
    cut(tally::SplitPattern(text.substr(size / 2)), text.substr(0, size / 2));
  } catch (const tally::Error&) {
  }
  return 0;
}

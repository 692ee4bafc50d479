// Any bytes are a tokenizer in one of the three forms of files or throw tally::Error. A tokenizer is written and read
// again as the same, and gives back every text unless it changes texts: by a normal form, a step that drops matches or
// an added token that takes or normalises its surroundings.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tasks/text/encoder.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace {

void check_tokenizer(tally::TokenizerParts parts) {
  const std::string text = tally::tokenizer_json(parts);
  if (tally::tokenizer_json(tally::parse_tokenizer_json(text, "again")) != text) std::abort();
  const auto strips = [](const tally::AddedToken& token) { return token.flags != tally::AddedFlags{}; };
  const bool changes_texts = !parts.normal_forms.empty() || std::ranges::any_of(parts.added, strips);
  const tally::Tokenizer tokenizer(std::move(parts), false);
  const std::string sample = "the cat's 12345 \xff\xc3\xa9\n  ";
  const std::string decoded = tokenizer.decode(tally::Encoder(tokenizer).encode(sample));
  if (!changes_texts && decoded != sample) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t half = std::min(bytes.find('\0'), bytes.size());
  for (int form = 0; form < 3; ++form) {
    try {
      if (form == 0) check_tokenizer(tally::parse_tokenizer_json(bytes, "fuzz"));
      if (form == 1) check_tokenizer(tally::parse_tiktoken(bytes, "fuzz", ""));
      if (form == 2) {
        check_tokenizer(tally::parse_vocabulary(bytes.substr(0, half), "fuzz",
                                                bytes.substr(std::min(half + 1, bytes.size())), "fuzz"));
      }
    } catch (const tally::Error&) {
    }
  }
  return 0;
}

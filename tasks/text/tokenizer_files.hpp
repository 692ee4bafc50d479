// Tokenizers in files: `tokenizer.json` of Hugging Face's tokenizers (read and written), `vocab.json` with `merges.txt`
// (GPT-2's form), and `.tiktoken` (lines of a token in base64 and its rank). Files are not trusted: whatever is not
// understood is refused with its location, never passed over.
#pragma once

#include <string>
#include <string_view>

#include "core/io/json.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

// By the path: a file that ends in .json, one that ends in .tiktoken, merges.txt or vocab.json with the other beside
// it, a folder with one of these. `pattern`: name or text of the pattern of a .tiktoken file, cl100k where empty; of
// the others their own, or gpt2. Throws Error naming file, location and what was expected.
TokenizerParts read_tokenizer(const std::string& path, std::string_view pattern = "");

// Each kind by itself.
TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& source);
TokenizerParts parse_vocabulary(std::string_view vocabulary, const std::string& vocabulary_source,
                                std::string_view merges, const std::string& merges_source);
// end_of_text_name becomes a special token behind the last rank.
TokenizerParts parse_tiktoken(std::string_view text, const std::string& source, std::string_view pattern);

// tokenizer.json. The same tokenizer gives the same text.
std::string tokenizer_json(const TokenizerParts& parts);
// The two files of the other form. Throws Error for a tokenizer that they cannot say: another pattern than gpt2.
struct VocabularyFiles {
  std::string vocabulary, merges;
};
VocabularyFiles vocabulary_files(const TokenizerParts& parts);

}  // namespace tally

// Tokenizers in files: `tokenizer.json` of Hugging Face's tokenizers (read and written), `vocab.json` with `merges.txt`
// (GPT-2's form), and `.tiktoken` (lines of a token in base64 and its rank). Files are not trusted: whatever is not
// understood is refused with its location, never passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

// By the path: a file that ends in .json, one that ends in .tiktoken, merges.txt or vocab.json with the other beside
// it, a folder with one of these. `pattern`: name or text of the pattern of a .tiktoken file, cl100k where empty; of
// the others their own, or gpt2. `specials`: of a .tiktoken file, which does not hold them. Throws Error naming file,
// location and what was expected.
TokenizerParts read_tokenizer(const std::string& path, std::string_view pattern = "",
                              const std::vector<SpecialToken>& specials = {});

// Each kind by itself.
TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& source);
TokenizerParts parse_vocabulary(std::string_view vocabulary, const std::string& vocabulary_source,
                                std::string_view merges, const std::string& merges_source);
// The special tokens may fill holes between the ranks (p50k_base) and lie behind them; ids between that stand for
// nothing become special tokens of their own. Without any, end_of_text_name becomes one behind the last rank, which
// notes tell.
TokenizerParts parse_tiktoken(std::string_view text, const std::string& source, std::string_view pattern,
                              const std::vector<SpecialToken>& specials = {});
// "<|endoftext|>=100257". Throws Error for anything else.
SpecialToken parse_special(std::string_view text);
// Help of an option that becomes one of them.
inline constexpr const char* special_id_help =
    "of a .tiktoken file, which does not say it: a special token and its id, as <|endoftext|>=100257 of cl100k; may be "
    "given again";

// tokenizer.json. The same tokenizer gives the same text.
std::string tokenizer_json(const TokenizerParts& parts);
// tokenizer_config.json, for the same folder: with it other libraries use tokenizer.json as it is. Without it they
// choose the pattern by the kind of model. `bos` and `eos`: ids of the special tokens that begin and
// end a text. `length`: tokens of the longest text that the model reads; 0 if unknown.
std::string tokenizer_config_json(const TokenizerParts& parts, std::optional<std::int64_t> bos,
                                  std::optional<std::int64_t> eos, std::int64_t length = 0);
// The two files of the other form. Throws Error for a tokenizer that they cannot say: another pattern than gpt2.
struct VocabularyFiles {
  std::string vocabulary, merges;
};
VocabularyFiles vocabulary_files(const TokenizerParts& parts);

}  // namespace tally

// Tokenizers in files: `tokenizer.json` of Hugging Face's tokenizers (read and written), `vocab.json` with `merges.txt`
// (GPT-2's form), and `.tiktoken` (lines of a token in base64 and its rank). Files are not trusted: unsupported content
// is refused with its location, never ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

// Reads a tokenizer of the kind that the path shows: a file that ends in .json or .tiktoken, merges.txt or vocab.json
// next to its counterpart, or a folder with one of these. `pattern`: name or text of the pattern of a .tiktoken file,
// cl100k if empty. The other kinds have their own pattern, or gpt2. `specials`: of a .tiktoken file, which does not
// hold them. Throws Error naming file, location and the expected content.
TokenizerParts read_tokenizer(const std::string& path, std::string_view pattern = "",
                              const std::vector<SpecialToken>& specials = {});

// Each kind separately.
TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& source);
TokenizerParts parse_vocabulary(std::string_view vocabulary, const std::string& vocabulary_source,
                                std::string_view merges, const std::string& merges_source);
// The special tokens may fill holes between the ranks (p50k_base) and follow the last rank. Unused ids in between
// become special tokens of their own. Without any special token, end_of_text_name is added after the last rank, with an
// entry in the notes.
TokenizerParts parse_tiktoken(std::string_view text, const std::string& source, std::string_view pattern,
                              const std::vector<SpecialToken>& specials = {});
// "<|endoftext|>=100257". Throws Error for anything else.
SpecialToken parse_special(std::string_view text);
// Help of an option that becomes one of them.
inline constexpr const char* special_id_help =
    "for a .tiktoken file, which lacks them: a special token and its id, such as <|endoftext|>=100257 in cl100k; may "
    "be repeated";

// The tokenizer.json that the tokenizer was read from, or one for a byte-level tokenizer of another origin. The same
// tokenizer gives the same text.
std::string tokenizer_json(const TokenizerParts& parts);
// tokenizer_config.json, for the same folder. With it, other libraries use tokenizer.json as it is; without it, they
// choose the pattern by the kind of model. `bos` and `eos`: ids of the special tokens that begin and end a text.
// `length`: tokens of the longest text that the model reads; 0 if unknown.
std::string tokenizer_config_json(const TokenizerParts& parts, std::optional<std::int64_t> bos,
                                  std::optional<std::int64_t> eos, std::int64_t length = 0);
}  // namespace tally

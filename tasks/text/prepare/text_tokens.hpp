// The tokens that a language model reads, by split, and the tokenizer that produced them. They come from a folder that
// `tally prepare` made (tasks/text/prepare/text_tokens.hpp), or from token files of other programs
// (tasks/text/prepare/token_file.hpp), which have no manifest.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "tasks/text/prepare/token_file.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

// The output of `tally prepare`, which training reads: a folder of
//   manifest.json            version, recipe, counts, the contents of each split; the tokenizer with its checksum
//   tokenizer.json           the tokenizer (tasks/text/tokenizer.hpp)
//   <split>.bin              tokens, headerless (tasks/text/prepare/token_file.hpp): an end-of-text token before
//                            each document, and one more at the end of the file
//   documents-<split>.tsv    one line a document: path, first token, tokens, bytes

struct TextSources {
  // A folder with a manifest; or a folder with train, validation (val) and test as .bin or .npy; or a single file. A
  // single file is the training data if `validation` names another file, else the split "test".
  std::string data;
  std::string validation = {};  // a file
  std::string tokenizer = {};   // of files without a manifest (read_tokenizer()); empty: the meaning of ids is unknown
  std::int64_t vocabulary = 0;  // of files without a manifest: the number of ids, unless the tokenizer has more
  std::string token_type = "auto";  // of files without a manifest and a header (token_format())
  std::string end_token = {};       // for these: the name or id of the token that ends a document
};

class TextTokens {
 public:
  // Throws Error naming a missing source, or one that has no effect next to the others, and like TokenFile and
  // read_tokenizer(). Throws DamagedText naming file and location if a manifest is wrong, or if a token file or the
  // tokenizer is missing or contradicts it. It reads only the headers of token files; verify() compares checksums.
  explicit TextTokens(const TextSources& sources);

  const std::string& name() const { return name_; }  // the folder or file
  // Ids are 0 to vocabulary() - 1.
  std::int64_t vocabulary() const { return vocabulary_; }
  // Null if the meaning of the ids is unknown.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  std::string tokenizer_name() const { return tokenizer_name_; }            // its file
  const std::string& tokenizer_checksum() const { return tokenizer_sum_; }  // CRC-32C of its tokenizer.json; or empty
  // The token between documents, if there is one.
  std::optional<std::int32_t> end_of_text() const { return end_of_text_; }

  bool has_splits() const { return has_splits_; }    // false for a tokenizer without a text
  bool of_one_file() const { return of_one_file_; }  // a single file, which is not training data
  // Those with tokens, in the manifest's order or as train, validation, test.
  struct Split {
    std::string name;
    TokenFile file;
  };
  const std::vector<Split>& splits() const { return splits_; }
  // Throws Error if the split has no tokens.
  const TokenFile& tokens(std::string_view split) const;
  bool has(std::string_view split) const { return find(split) != nullptr; }

  // CRC-32C of the tokens of a split, as text. They are read once. Throws DamagedText if the manifest has a different
  // one.
  std::string checksum(std::string_view split) const;
  // "train: 1,234 tokens, 1a2b3c4d; validation: ...", without reading all tokens. The checksums come from the manifest,
  // or cover the first and last 2^16 tokens of files without a manifest.
  std::string record() const;
  // Reads the split, once, if the manifest has its checksum. Throws like checksum().
  void verify(std::string_view split) const;

 private:
  struct Sum {
    std::string wanted = {};  // from the manifest; empty: none
    std::string found = {};   // empty: not read yet
  };
  void open_prepared(const TextSources& sources);
  void read_manifest(const JsonValue& manifest, const std::string& folder);
  void open_files(const TextSources& sources);
  void open_file(const TextSources& sources, const std::string& split, const std::string& path);
  std::optional<std::int32_t> end_of(const TextSources& sources) const;
  const TokenFile* find(std::string_view split) const;
  const std::string& checksum_of(std::string_view split) const;

  std::string name_, tokenizer_name_, tokenizer_sum_;
  std::int64_t vocabulary_ = 0;
  bool has_splits_ = true, of_one_file_ = false;
  std::optional<Tokenizer> tokenizer_;
  std::optional<std::int32_t> end_of_text_;
  std::vector<Split> splits_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Sum, std::less<>> sums_;
};

// Whether the path is a folder with a manifest.
bool is_prepared_text(const std::string& path);

}  // namespace tally

// The tokens that a language model reads, by split, and the tokenizer that they were made with: a folder that
// `tally prepare` made (tasks/text/prepare/prepared_text.hpp), or token files of other programs
// (tasks/text/prepare/token_file.hpp), which say nothing of themselves.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/text/prepare/prepared_text.hpp"
#include "tasks/text/tokenizer.hpp"

namespace tally {

struct TextSources {
  // A folder with a manifest; or a folder with train, validation (val) and test as .bin or .npy; or one file: what is
  // trained on where `validation` names another, else the split "test".
  std::string data;
  std::string validation;       // a file
  std::string tokenizer;        // of files without a manifest (read_tokenizer()); empty: ids stand for nothing known
  std::int64_t vocabulary = 0;  // of files without a manifest: the number of ids, if the tokenizer has not more
  std::string token_type = "auto";  // of files without a manifest and a header (token_format())
  std::string end_token = {};       // then: name of the special token, or the id, that ends a document
};

class TextTokens {
 public:
  // Throws Error naming what is missing or means nothing beside the rest, and as PreparedText, TokenFile and
  // read_tokenizer() do. Of token files no more than the headers are read.
  explicit TextTokens(const TextSources& sources);

  const std::string& name() const { return name_; }  // the folder or file
  // Ids are 0 to vocabulary() - 1.
  std::int64_t vocabulary() const { return vocabulary_; }
  // Null where only ids are known.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  std::string tokenizer_name() const { return tokenizer_name_; }            // its file
  const std::string& tokenizer_checksum() const { return tokenizer_sum_; }  // CRC-32C of its tokenizer.json; or empty
  // The token between documents, where there is one.
  std::optional<std::int32_t> end_of_text() const { return end_of_text_; }

  bool has_splits() const { return has_splits_; }  // of a tokenizer without a text there are none, not even empty ones
  bool of_one_file() const { return of_one_file_; }  // of which nothing is to be trained on
  // Those with tokens, in the manifest's order or as train, validation, test.
  struct Split {
    std::string name;
    TokenFile file;
  };
  const std::vector<Split>& splits() const { return splits_; }
  // Throws Error where there are no tokens of this split.
  const TokenFile& tokens(std::string_view split) const;
  bool has(std::string_view split) const { return find(split) != nullptr; }

  // CRC-32C of the tokens of a split, as text. They are read once. Throws DamagedText where the manifest says another.
  std::string checksum(std::string_view split) const;
  // "train: 1,234 tokens, 1a2b3c4d; validation: ...", without reading them through: the manifest's checksums or, of
  // files that have none, those of their first and last 2^16 tokens.
  std::string record() const;
  // Where a manifest says one, reads on towards it, at most so many bytes. Throws as checksum() at the end.
  void read_on(std::string_view split, std::int64_t bytes) const;

 private:
  struct Sum {
    std::string wanted = {};  // of the manifest; empty: none
    std::int64_t tokens = 0;  // that `sum` is of
    std::uint32_t sum = 0;
  };
  void open_prepared(const TextSources& sources);
  void open_files(const TextSources& sources);
  void open_file(const TextSources& sources, const std::string& split, const std::string& path);
  std::optional<std::int32_t> end_of(const TextSources& sources) const;
  const TokenFile* find(std::string_view split) const;

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

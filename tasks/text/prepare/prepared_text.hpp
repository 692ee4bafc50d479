// The output of `tally prepare`, which training reads: a folder of
//   manifest.json            version, recipe, counts, the contents of each split; the tokenizer with its checksum
//   tokenizer.json           the tokenizer (tasks/text/tokenizer.hpp)
//   <split>.bin              tokens, headerless (tasks/text/prepare/token_file.hpp): an end-of-text token before
//                            each document, and one more at the end of the file
//   documents-<split>.tsv    one line a document: path, first token, tokens, bytes
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/io/json.hpp"
#include "tasks/text/prepare/token_file.hpp"

namespace tally {

// Files whose contents contradict their manifest. No other command line can fix that.
class DamagedText : public Error {
 public:
  using Error::Error;
};

struct TextSplit {
  std::string name;            // "train", "validation", "test"
  std::int64_t files = 0;      // source files
  std::int64_t documents = 0;  // texts; a JSON lines file holds many
  std::int64_t bytes = 0;      // of all documents
  std::int64_t words = 0;      // as count_words (tasks/text/prepare/words.hpp)
  std::int64_t tokens = 0;     // in the token file, including the tokens between documents
  std::string text_checksum;   // CRC-32C of the concatenated documents
  std::string token_checksum;  // CRC-32C of the token file
};

// manifest.json; `record` is the complete file.
struct TextManifest {
  std::vector<TextSplit> splits;
  std::int64_t vocabulary = 0;
  std::int32_t end_of_text = 0;    // id of the token between documents
  std::string tokenizer_checksum;  // CRC-32C of tokenizer.json
  JsonValue record;

  // Throws Error naming the folder and the existing splits.
  const TextSplit& split(std::string_view name) const;
};

class PreparedText {
 public:
  // Throws Error naming the folder if it has no manifest. Throws DamagedText naming file and location if the manifest
  // is wrong, or if a token file or the tokenizer is missing or contradicts it. It compares sizes and the tokenizer's
  // checksum; TextTokens, which reads the tokens, compares their checksums.
  explicit PreparedText(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const TextManifest& manifest() const { return manifest_; }
  std::string tokenizer_path() const { return folder_ + "/tokenizer.json"; }
  // Throws Error for an unknown split.
  TokenFile tokens(std::string_view split) const;

 private:
  void check_files() const;

  std::string folder_;
  TextManifest manifest_;
};

}  // namespace tally

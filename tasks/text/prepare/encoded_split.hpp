// One split of a text that is being prepared: its tokens and documents on their way into files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/atomic_file.hpp"
#include "core/io/json.hpp"
#include "tasks/text/prepare/corpus.hpp"

namespace tally {

// Writes <folder>/<name>.bin and documents-<name>.tsv, one text after the other.
class EncodedSplit {
 public:
  // token_bytes: 2 or 4.
  EncodedSplit(const std::string& folder, const std::string& name, std::size_t token_bytes, std::int32_t end_of_text);

  // The next text: its bytes, its tokens and the number of its words.
  void add(const CorpusText& text, std::string_view bytes, std::span<const std::int32_t> ids, std::int64_t words);
  // Puts the files in place. Returns the manifest's entry: files, documents, bytes, words, tokens and checksums.
  JsonValue finish();

 private:
  void write(std::span<const std::int32_t> ids);

  std::size_t token_bytes_;
  std::int32_t end_of_text_;
  std::uint32_t text_sum_ = 0, token_sum_ = 0;
  std::int64_t files_ = 0, texts_ = 0, bytes_ = 0, words_ = 0, tokens_written_ = 0;
  std::string last_file_;
  AtomicFile tokens_, documents_;
};

}  // namespace tally

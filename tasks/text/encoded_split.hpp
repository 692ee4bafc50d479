// One split of a text that is being prepared: its tokens and documents on their way into files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/io/atomic_file.hpp"
#include "core/io/json.hpp"
#include "tasks/text/text_parts.hpp"

namespace tally {

// Writes <folder>/<name>.bin and documents-<name>.tsv part by part. The next process goes on from what was saved last:
// it is given the same parts again and passes over those that are written.
class EncodedSplit {
 public:
  // token_bytes: 2 or 4. `goes_on`: from what another process has saved in the folder, where that is whole.
  EncodedSplit(const std::string& folder, const std::string& name, std::size_t token_bytes, std::int32_t end_of_text,
               bool goes_on);

  // How many parts were saved before.
  std::int64_t saved_parts() const { return saved_.parts; }
  // One of them, in their order. Throws Error when they turn out to be others than those that were saved.
  void pass_over(const TextPart& part);
  // The next one: its tokens, and how many words it has.
  void add(const TextPart& part, const std::vector<std::int32_t>& ids, std::int64_t words);
  void save();
  // Puts the files in place. What the manifest says of the split: files, documents, bytes, words, tokens and checksums.
  JsonValue finish();
  // For when the record of a finished split is written.
  void forget_saved();

 private:
  // What <name>.saved.json holds; zeros where nothing was saved. first: token of the text at work.
  struct Saved {
    std::int64_t parts = 0;
    std::uint32_t text_sum = 0, token_sum = 0;
    std::int64_t tokens = 0, words = 0, first = 0;
    std::uint64_t token_file_bytes = 0, document_bytes = 0;
  };
  static Saved read(const std::string& folder, const std::string& name);

  void write(std::span<const std::int32_t> ids);
  void count_part(const TextPart& part);

  std::string folder_, name_;
  std::size_t token_bytes_;
  std::int32_t end_of_text_;
  Saved saved_, now_;
  // Counted again over parts that are passed over.
  std::int64_t files_ = 0, texts_ = 0, bytes_ = 0;
  std::string last_file_;
  AtomicFile tokens_, documents_;
};

}  // namespace tally

// Which texts of files and folders are taken, and for which split. In this order, each rule counting what it drops:
//   1. of the paths below a folder that match `include`, sorted by their bytes (links are not followed), those that do
//      not match `exclude`
//   2. size in bytes    3. well-formed UTF-8    4. no line matches `skip_if`    5. not equal to an earlier text
// With u = crc32c(relative path) / 2^32 a text is for validation where u < validation, for test where
// u < validation + test, else for training. Each line of a .jsonl file is a text of its own, its member "text"; its
// path is that of the file, a colon and the line's number.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/io/json.hpp"
#include "core/io/reader.hpp"

namespace tally {

struct CorpusRules {
  std::string include, exclude;               // PCRE2 on the relative path; empty: all, none
  std::int64_t min_bytes = 1, max_bytes = 0;  // 0: any number
  std::string invalid = "skip";               // UTF-8 that is not well-formed: skip, keep or refuse
  std::string skip_if;                        // PCRE2 on a line
  double validation = 0.05, test = 0.05;
  std::string split_by = "file";  // or folder: the path of the folder decides
  bool strict = false;            // what cannot be read, or changes, is an error, not skipped

  JsonValue json() const;
};

struct CorpusSource {
  std::string path;   // file or folder
  std::string split;  // of all its texts; empty: as the rules say
};

struct CorpusText {
  std::string file;  // to be opened
  std::string path;  // below its source, safe to print
  std::string split;
  std::uint64_t offset = 0, length = 0;  // of a line of .jsonl; length 0: the whole file
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;
};

struct Corpus {
  std::vector<CorpusText> texts;
  std::int64_t found = 0, unreadable = 0, by_path = 0, by_size = 0, by_invalid = 0, by_line = 0, equal = 0;

  // `kept`: of the texts those that could be read again.
  JsonValue counts(std::int64_t kept) const;
};

// Told after each MiB and each file with the bytes that were read so far; false ends the work.
using CorpusProgress = std::function<bool(std::uint64_t bytes)>;

// Throws Error naming the path for a source that is not there, a wrong line of .jsonl, a wrong pattern, and with
// `strict` or `invalid` refuse for the first file of that kind. Empty texts where progress said false.
Corpus select_texts(const std::vector<CorpusSource>& sources, const CorpusRules& rules, const CorpusProgress& progress);

// The member "text" of a line of .jsonl. Throws Error naming source and line.
std::string text_of_line(std::string_view line, const std::string& source);

// The bytes of a text, one stretch after the other: of a file no more than that is in memory, of a line of .jsonl all.
class CorpusTextReader {
 public:
  // Throws Error when it cannot be opened, or is no text any more. `text` must outlive it.
  explicit CorpusTextReader(const CorpusText& text);

  bool done() const { return at_ == size_; }
  // The next bytes, at most so many. Throws Error, at the end at the latest, when they are not those that were
  // selected.
  std::string read(std::uint64_t most);

 private:
  const CorpusText& text_;
  FileReader reader_;
  std::string line_;  // of .jsonl: its text
  std::uint64_t at_ = 0, size_ = 0;
  std::uint32_t checksum_ = 0;
};

}  // namespace tally

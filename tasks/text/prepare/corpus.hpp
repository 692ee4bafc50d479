// Selects texts of files and folders, and their splits. Each rule counts the texts that it drops, in this order:
//   1. paths below a folder that match `include` and not `exclude`, sorted by their bytes. Links to files are
//      followed, links to folders are not
//   2. files that cannot be read; the size in bytes
//   3. binary files (a zero byte); text that is not UTF-8; lines of JSON without a text
//   4. a line that matches `skip_if`    5. texts that are equal to an earlier one
// A text's split depends on u = crc32c(relative path) / 2^32: validation if u < validation, test if
// u < validation + test, else training. Each line of a .jsonl or .ndjson file is a text of its own, its member `field`;
// its path is the path of the file, a colon and the line's number.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.hpp"

namespace tally {

struct CorpusRules {
  std::string include, exclude;               // PCRE2 on the relative path; empty: all, none
  std::int64_t min_bytes = 1, max_bytes = 0;  // 0: any number
  std::string field = "text";                 // of a line of JSON
  std::string skip_if;                        // PCRE2 on a line
  double validation = 0.05, test = 0.05;
  bool strict = false;  // texts that rules 2 and 3 drop, except by size, and files that change are errors

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
  std::uint64_t offset = 0, length = 0;  // of a line of JSON; length 0: the whole file
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;

  // For messages: the file, and the line if the text is one of many.
  std::string place() const;
};

struct Corpus {
  std::vector<CorpusText> texts;
  std::int64_t found = 0;    // the sum of texts.size() and all counts of dropped texts
  std::string first_reason;  // why the first text was dropped that no rule on paths, sizes or lines dropped; or empty

  // Adds to the count of a rule, and returns it.
  std::int64_t drop(std::string_view rule, std::int64_t more = 1);
  // `kept`: how many of the texts could be read a second time.
  JsonValue counts(std::int64_t kept) const;

 private:
  JsonValue dropped_ = JsonValue::object({{"path", 0},
                                          {"size", 0},
                                          {"invalid", 0},
                                          {"binary", 0},
                                          {"json", 0},
                                          {"content", 0},
                                          {"equal", 0},
                                          {"not_files", 0},
                                          {"unreadable", 0}});
};

struct CorpusObserver {
  // Called after each MiB and each file with the bytes that were read so far; false ends the work.
  std::function<bool(std::uint64_t bytes)> progress;
  // Called with place and reason of the first few texts that each of the rules 2 and 3 drops.
  std::function<void(std::string_view line)> note = {};
};

// Throws Error naming the path for a source that does not exist and a wrong pattern; with `strict`, for the
// first text of that kind; for a file that does not fit in memory. Empty texts if progress returned false.
Corpus select_texts(const std::vector<CorpusSource>& sources, const CorpusRules& rules, const CorpusObserver& observer);

// The member `field` of a line of JSON. Throws Error naming source and byte of the line.
std::string text_of_line(std::string_view line, std::string_view field, const std::string& source);

// The bytes of a text, read again. Throws Error naming its place if it has vanished or changed since it was selected.
std::string read_corpus_text(const CorpusText& text, std::string_view field);

}  // namespace tally

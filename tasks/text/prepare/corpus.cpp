#include "tasks/text/prepare/corpus.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/device/allocator.hpp"
#include "core/error.hpp"
#include "core/io/checksum.hpp"
#include "core/io/reader.hpp"
#include "core/utf8.hpp"
#include "tasks/text/splitter.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t chunk_bytes = 1 << 20;
constexpr std::uint64_t begin_bytes = 1 << 16;  // enough of a file to recognise binary data
constexpr std::int64_t noted_texts = 3;         // of each count

std::string shown(std::string_view path) { return escape_for_print(path, 1000); }

struct SourceFile {
  std::string path;            // below the folder
  std::string_view rule = {};  // that drops it if there is a reason: not_files or unreadable
  std::string reason = {};
  bool is_folder = false;  // one with a reason
};

// Why something below a folder is not read; empty for a file.
std::string reason_of(const fs::file_status& status, const std::error_code& error) {
  if (fs::is_regular_file(status)) return "";
  if (status.type() == fs::file_type::not_found) return "links to a file that does not exist";
  if (!fs::exists(status)) return error.message();
  return fs::is_directory(status) ? "links to a folder" : "is a pipe, a socket or a device, not a file";
}

// Lists everything below a folder except folders, in subfolders too. Links to files are followed (the caches of model
// hubs hold only links), links to folders are not. A broken link and a folder that cannot be opened are unreadable.
void list_below(const fs::path& folder, const fs::path& below, std::vector<SourceFile>& files) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code failure;
    const fs::path path = below / entry->path().filename();
    const bool is_link = entry->is_symlink(failure);
    const fs::file_status status = entry->status(failure);
    if (fs::is_directory(status) && !is_link) {
      list_below(entry->path(), path, files);
    } else {
      files.push_back({path.string(), fs::exists(status) ? "not_files" : "unreadable", reason_of(status, failure)});
    }
  }
  if (error) files.push_back({below.string(), "unreadable", error.message(), true});
}

// Sorted by the bytes of the paths.
std::vector<SourceFile> files_below(const std::string& folder) {
  std::vector<SourceFile> files;
  list_below(folder, "", files);
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

class Selector {
 public:
  Selector(const CorpusRules& rules, const CorpusObserver& observer) : rules_(rules), observer_(observer) {
    if (!rules.include.empty()) include_.emplace(rules.include);
    if (!rules.exclude.empty()) exclude_.emplace(rules.exclude);
    if (!rules.skip_if.empty()) skip_if_.emplace(rules.skip_if);
  }

  bool add_source(const CorpusSource& source) {
    std::error_code error;
    const fs::file_status status = fs::status(source.path, error);
    check(fs::exists(status), "text", "{}: does not exist", shown(source.path));
    if (!fs::is_directory(status)) {
      return add_file({source.path, fs::path(source.path).filename().string(), source.split});
    }
    for (const SourceFile& file : files_below(source.path)) {
      // A folder that cannot be opened may hold paths that match.
      if (include_ && !file.is_folder && !include_->found_in(file.path)) continue;
      const bool excluded = exclude_ && exclude_->found_in(file.path);
      const std::string path = file.path.empty() ? source.path : source.path + "/" + file.path;
      if (!excluded && file.reason.empty()) {
        if (!add_file({path, file.path, source.split})) return false;
        continue;
      }
      ++corpus_.found;
      if (excluded) {
        corpus_.drop("path");
      } else {
        drop(file.rule, formatted("[text] {}: {}", shown(path), file.reason));
      }
    }
    return true;
  }

  Corpus take() { return std::move(corpus_); }

 private:
  // Counts a text that is dropped for a reason, or throws.
  void drop(std::string_view rule, const std::string& why) {
    if (rules_.strict && rule != "not_files") throw Error(why);
    if (corpus_.first_reason.empty()) corpus_.first_reason = why;
    const std::int64_t count = corpus_.drop(rule);
    if (!observer_.note || count > noted_texts + 1) return;
    observer_.note(count <= noted_texts ? formatted("dropped: {}", why)
                                        : "dropped: others for the same reason, which are only counted");
  }

  // False if reading failed and the file was dropped.
  template <class Read>
  bool could(Read&& read) {
    try {
      read();
      return true;
    } catch (const Error& error) {
      drop("unreadable", error.what());
      return false;
    }
  }

  bool add_file(CorpusText text) {
    std::optional<FileReader> reader;
    std::string begin;
    const bool there = could([&] {
      reader.emplace(text.file);
      begin = reader->read_string(0, std::min(begin_bytes, reader->size()));
    });
    const std::size_t zero = begin.find('\0');
    if (there && zero == begin.npos && (text.path.ends_with(".jsonl") || text.path.ends_with(".ndjson"))) {
      return add_lines(text, *reader);
    }
    ++corpus_.found;
    if (!there) return true;
    text.bytes = reader->size();
    if (drop_by_size(text.bytes)) return true;
    if (zero != begin.npos) {
      drop_binary(text, begin, zero);
      return true;
    }
    check_memory(text);
    std::string bytes;
    if (could([&] { bytes = reader->read_string(0, text.bytes); })) add_text(std::move(text), bytes);
    return observer_.progress(read_ += bytes.size());
  }

  // A text is encoded whole, so its bytes and its tokens are in memory at once.
  static void check_memory(const CorpusText& text) {
    const double available = available_memory();
    check(2 * static_cast<double>(text.bytes) <= available, "text",
          "{}: has {} bytes; a text is one document and takes at least twice its size in memory, where {} bytes are "
          "available; split it, or make it lines of JSON",
          text.place(), text.bytes, static_cast<std::uint64_t>(available));
  }

  bool add_lines(const CorpusText& file, const FileReader& reader) {
    std::int64_t number = 0;
    std::string rest;  // the current, unfinished line
    for (std::uint64_t offset = 0, begin = 0; offset < reader.size() || !rest.empty();) {
      const std::uint64_t count = std::min(chunk_bytes, reader.size() - offset);
      const std::size_t seen = rest.size();  // without a line end
      if (!could([&] { rest += reader.read_string(offset, count); })) {
        ++corpus_.found;
        return true;
      }
      offset += count;
      std::size_t at = 0;
      for (std::size_t end = rest.find('\n', seen); at < rest.size(); end = rest.find('\n', at)) {
        if (end == rest.npos && offset < reader.size()) break;
        const std::string_view line = std::string_view(rest).substr(at, end - at);
        // A byte order mark is not part of the first line's JSON.
        const std::size_t mark = begin + at == 0 && line.starts_with("\xef\xbb\xbf") ? 3 : 0;
        CorpusText text{.file = file.file, .path = formatted("{}:{}", file.path, ++number), .split = file.split};
        text.offset = begin + at + mark;
        text.length = line.size() - mark;
        add_line(std::move(text), line.substr(mark));
        at += line.size() + 1;
      }
      begin += std::min(at, rest.size());
      rest.erase(0, at);
      if (!observer_.progress(read_ += count)) return false;
    }
    return true;
  }

  void add_line(CorpusText text, std::string_view line) {
    if (line.find_first_not_of(" \t\r") == line.npos) return;
    ++corpus_.found;
    const std::size_t wrong = find_invalid_utf8(line);
    if (wrong != line.npos) return drop_invalid(text, wrong);
    std::string bytes;
    try {
      bytes = text_of_line(line, rules_.field, text.place());
    } catch (const Error& error) {
      return drop("json", error.what());
    }
    text.bytes = bytes.size();
    if (!drop_by_size(text.bytes)) add_text(std::move(text), bytes);
  }

  bool drop_by_size(std::uint64_t bytes) {
    const bool drops =
        std::cmp_less(bytes, rules_.min_bytes) || (rules_.max_bytes > 0 && std::cmp_greater(bytes, rules_.max_bytes));
    if (drops) corpus_.drop("size");
    return drops;
  }
  void drop_binary(const CorpusText& text, std::string_view bytes, std::size_t zero) {
    const char* const kind = bytes.starts_with("\x1f\x8b") ? "is a gzip file, no text"
                             : bytes.starts_with("PAR1")   ? "is a Parquet file, no text"
                                                           : "is no text";
    drop("binary", formatted("[text] {}: {}: byte {} is zero", text.place(), kind, zero));
  }
  void drop_invalid(const CorpusText& text, std::size_t wrong) {
    drop("invalid", formatted("[text] {}: byte {} is not UTF-8", text.place(), wrong));
  }

  void add_text(CorpusText text, std::string_view bytes) {
    if (text.length == 0) {
      const std::size_t zero = bytes.find('\0'), wrong = find_invalid_utf8(bytes);
      if (zero != bytes.npos) return drop_binary(text, bytes, zero);
      if (wrong != bytes.npos) return drop_invalid(text, wrong);
    }
    if (skip_if_ && has_line(bytes, *skip_if_)) return void(corpus_.drop("content"));
    text.checksum = crc32c(bytes);
    // Texts with the same size and the same two hashes are equal.
    if (!seen_.emplace(bytes.size(), text.checksum, std::hash<std::string_view>()(bytes)).second) {
      return void(corpus_.drop("equal"));
    }
    if (text.split.empty()) text.split = split_of(text.path);
    text.path = escape_for_print(text.path, text.path.size());
    corpus_.texts.push_back(std::move(text));
  }

  static bool has_line(std::string_view text, const TextPattern& pattern) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (pattern.found_in(line)) return true;
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return false;
  }

  std::string split_of(const std::string& path) const {
    const double u = crc32c(path) / 4294967296.0;
    return u < rules_.validation ? "validation" : u < rules_.validation + rules_.test ? "test" : "train";
  }

  const CorpusRules& rules_;
  const CorpusObserver& observer_;
  std::optional<TextPattern> include_, exclude_, skip_if_;
  std::set<std::tuple<std::size_t, std::uint32_t, std::size_t>> seen_;
  std::uint64_t read_ = 0;
  Corpus corpus_;
};

}  // namespace

std::string CorpusText::place() const {
  return length > 0 ? formatted("{}: line {}", shown(file), path.substr(path.rfind(':') + 1)) : shown(file);
}

std::string text_of_line(std::string_view line, std::string_view field, const std::string& source) {
  std::optional<std::string> text;
  const JsonLimits limits{.max_depth = 64};
  std::set<std::string> names;
  parse_json_members(line, limits, source, 0, [&](JsonMember& member) {
    check(names.insert(member.name).second, "jsonl", "the name is used twice");
    if (member.name != field) return;
    check(member.value.is_string(), "jsonl", "is {}, not a string", member.value.kind());
    text = std::move(member.value.string());
  });
  if (text) return std::move(*text);
  std::string known;
  for (const std::string& name : names)
    known += formatted("{}{}", known.empty() ? "" : ", ", escape_for_print(name, 60));
  fail("jsonl", "{}: '{}' is missing; the line has {} (--field NAME takes another member)", source,
       escape_for_print(field), known.empty() ? "no members" : escape_for_print(known));
}

JsonValue CorpusRules::json() const {
  return JsonValue::object({{"include", include},
                            {"exclude", exclude},
                            {"min_bytes", min_bytes},
                            {"max_bytes", max_bytes},
                            {"field", field},
                            {"skip_if", skip_if},
                            {"validation", validation},
                            {"test", test}});
}

std::int64_t Corpus::drop(std::string_view rule, std::int64_t more) {
  const std::int64_t count = dropped_.integer(rule) + more;
  dropped_.set(rule, count);
  return count;
}

JsonValue Corpus::counts(std::int64_t kept) const {
  return JsonValue::object({{"found", found}, {"kept", kept}, {"dropped", dropped_}});
}

Corpus select_texts(const std::vector<CorpusSource>& sources, const CorpusRules& rules,
                    const CorpusObserver& observer) {
  const bool are_parts = rules.validation >= 0 && rules.test >= 0 && rules.validation + rules.test <= 1;
  check(are_parts, "text", "parts {} and {} of the texts; each at least 0, at most 1 together", rules.validation,
        rules.test);
  Selector selector(rules, observer);
  for (const CorpusSource& source : sources) {
    if (!selector.add_source(source)) return {};
  }
  return selector.take();
}

std::string read_corpus_text(const CorpusText& text, std::string_view field) {
  const FileReader reader(text.file);
  const std::uint64_t length = text.length > 0 ? text.length : reader.size();
  std::string bytes = reader.read_string(text.offset, length);
  if (text.length > 0) bytes = text_of_line(bytes, field, text.place());
  check(bytes.size() == text.bytes && crc32c(bytes) == text.checksum, "text", "{}: has changed while it was read",
        text.place());
  return bytes;
}

}  // namespace tally

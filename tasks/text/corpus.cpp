#include "tasks/text/corpus.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/error.hpp"
#include "core/io/checksum.hpp"
#include "core/utf8.hpp"
#include "tasks/text/text_pattern.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;

std::string shown(std::string_view path) { return escape_for_print(path, 1000); }
constexpr std::uint64_t chunk_bytes = 1 << 20;

// Bytes of the text without a character at its end of which more may follow.
std::size_t whole_characters(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t bytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return bytes > back ? text.size() - back : text.size();
  }
  return text.size();
}

class Selector {
 public:
  Selector(const CorpusRules& rules, const CorpusProgress& progress) : rules_(rules), progress_(progress) {
    if (!rules.include.empty()) include_.emplace(rules.include);
    if (!rules.exclude.empty()) exclude_.emplace(rules.exclude);
    if (!rules.skip_if.empty()) skip_if_.emplace(rules.skip_if);
  }

  bool add_source(const CorpusSource& source) {
    std::error_code error;
    const fs::file_status status = fs::status(source.path, error);
    check(fs::exists(status), "text", shown(source.path), ": is not there");
    if (!fs::is_directory(status)) {
      ++corpus_.found;
      return add_file(source.path, fs::path(source.path).filename().string(), source.split);
    }
    std::vector<std::string> paths;
    const auto note = [&](const std::error_code& problem, const std::string& at) {
      if (!problem) return;
      check(!rules_.strict, "text", shown(at), ": ", problem.message());
      ++corpus_.unreadable;
    };
    std::vector<fs::path> folders{source.path};
    while (!folders.empty()) {
      const fs::path folder = std::move(folders.back());
      folders.pop_back();
      fs::directory_iterator entries(folder, error);
      if (error) {
        note(error, folder.string());
        continue;
      }
      for (; entries != fs::directory_iterator(); entries.increment(error)) {
        std::error_code unknown;
        const fs::file_status kind = entries->symlink_status(unknown);
        note(unknown, entries->path().string());
        if (fs::is_directory(kind)) folders.push_back(entries->path());
        if (fs::is_regular_file(kind)) paths.push_back(entries->path().lexically_relative(source.path).string());
      }
      note(error, folder.string());
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      if (include_ && !include_->found_in(path)) continue;
      ++corpus_.found;
      if (exclude_ && exclude_->found_in(path)) {
        ++corpus_.by_path;
      } else if (!add_file(source.path + "/" + path, path, source.split)) {
        return false;
      }
    }
    return true;
  }

  Corpus take() { return std::move(corpus_); }

 private:
  // What the rules ask of the bytes of a text, which come in stretches.
  class Contents {
   public:
    Contents(const Selector& selector, const std::string& file) : selector_(selector), file_(file) {}

    void add(std::string_view bytes, bool last) {
      checksum_ = crc32c(bytes, checksum_);
      rest_ += bytes;
      // Lines are looked at whole, characters too.
      const std::size_t lines = selector_.skip_if_ ? rest_.rfind('\n') + 1 : whole_characters(rest_);
      const std::size_t whole = last ? rest_.size() : lines;
      look_at(std::string_view(rest_).substr(0, whole));
      offset_ += whole;
      rest_.erase(0, whole);
    }
    bool invalid() const { return invalid_; }
    bool has_line() const { return has_line_; }
    std::uint32_t checksum() const { return checksum_; }

   private:
    void look_at(std::string_view bytes) {
      if (selector_.rules_.invalid != "keep") {
        const std::size_t wrong = find_invalid_utf8(bytes);
        check(wrong == bytes.npos || selector_.rules_.invalid != "refuse", "text", shown(file_), ": byte ",
              offset_ + wrong, " is not UTF-8");
        invalid_ |= wrong != bytes.npos;
      }
      if (selector_.skip_if_ && !has_line_) has_line_ = Selector::has_line(bytes, *selector_.skip_if_);
    }

    const Selector& selector_;
    const std::string& file_;
    std::string rest_;  // has not been looked at
    std::uint64_t offset_ = 0;
    std::uint32_t checksum_ = 0;
    bool invalid_ = false, has_line_ = false;
  };

  bool add_file(const std::string& file, const std::string& path, const std::string& split) {
    if (path.ends_with(".jsonl")) return add_lines(file, path, split);
    CorpusText text{.file = file, .path = path, .split = split};
    Contents contents(*this, text.file);
    std::optional<FileReader> reader;
    const auto readable = [&](auto&& read) {
      try {
        read();
        return true;
      } catch (const Error&) {
        if (rules_.strict) throw;
        ++corpus_.unreadable;
        return false;
      }
    };
    if (!readable([&] { reader.emplace(file); })) return true;
    text.bytes = reader->size();
    if (drop_by_size(text.bytes)) return true;
    bool go_on = true;
    for (std::uint64_t offset = 0; go_on;) {
      std::string chunk;
      const std::uint64_t count = std::min(chunk_bytes, text.bytes - offset);
      if (!readable([&] { chunk = reader->read_string(offset, count); })) return true;
      offset += count;
      contents.add(chunk, offset == text.bytes);
      go_on = progress_(read_ += count);
      if (offset == text.bytes) break;
    }
    if (go_on) add_text(std::move(text), contents);
    return go_on;
  }

  bool add_lines(const std::string& file, const std::string& path, const std::string& split) {
    std::optional<FileReader> opened;
    try {
      opened.emplace(file);
    } catch (const Error&) {
      if (rules_.strict) throw;
      ++corpus_.unreadable;
      return true;
    }
    const FileReader& reader = *opened;
    std::int64_t number = 0;
    std::string rest;  // the line that has begun
    --corpus_.found;
    for (std::uint64_t offset = 0, begin = 0; offset < reader.size() || !rest.empty();) {
      const std::uint64_t count = std::min(chunk_bytes, reader.size() - offset);
      const std::size_t seen = rest.size();  // without a line end
      rest += reader.read_string(offset, count);
      offset += count;
      std::size_t at = 0;
      for (std::size_t end = rest.find('\n', seen); at < rest.size(); end = rest.find('\n', at)) {
        if (end == rest.npos && offset < reader.size()) break;
        const std::string_view line = std::string_view(rest).substr(at, end - at);
        add_line({.file = file,
                  .path = concat(path, ":", ++number),
                  .split = split,
                  .offset = begin + at,
                  .length = line.size()},
                 line);
        at += line.size() + 1;
      }
      begin += std::min(at, rest.size());
      rest.erase(0, at);
      if (!progress_(read_ += count)) return false;
    }
    return true;
  }

  void add_line(CorpusText text, std::string_view line) {
    if (line.find_first_not_of(" \t\r") == line.npos) return;
    ++corpus_.found;
    if (rules_.invalid == "skip" && find_invalid_utf8(line) != line.npos) {
      ++corpus_.by_invalid;
      return;
    }
    const std::string bytes =
        text_of_line(line, concat(shown(text.file), ": line ", text.path.substr(text.path.rfind(':') + 1)));
    text.bytes = bytes.size();
    if (drop_by_size(text.bytes)) return;
    Contents contents(*this, text.file);
    contents.add(bytes, true);
    add_text(std::move(text), contents);
  }

  bool drop_by_size(std::uint64_t bytes) {
    const bool drop =
        std::cmp_less(bytes, rules_.min_bytes) || (rules_.max_bytes > 0 && std::cmp_greater(bytes, rules_.max_bytes));
    corpus_.by_size += drop ? 1 : 0;
    return drop;
  }

  void add_text(CorpusText text, const Contents& contents) {
    if (contents.invalid()) {
      ++corpus_.by_invalid;
      return;
    }
    if (contents.has_line()) {
      ++corpus_.by_line;
      return;
    }
    text.checksum = contents.checksum();
    const auto [first, last] = by_checksum_.equal_range(text.checksum);
    for (auto twin = first; twin != last; ++twin) {
      if (same_bytes(corpus_.texts[twin->second], text)) {
        ++corpus_.equal;
        return;
      }
    }
    by_checksum_.emplace(text.checksum, corpus_.texts.size());
    if (text.split.empty()) text.split = split_of(text.path);
    text.path = escape_for_print(text.path, text.path.size());
    corpus_.texts.push_back(std::move(text));
  }

  // Whether both, read again, are the same; one that has changed is left to be dropped when it is encoded.
  bool same_bytes(const CorpusText& a, const CorpusText& b) const {
    if (a.bytes != b.bytes) return false;
    try {
      CorpusTextReader of_a(a), of_b(b);
      while (!of_a.done()) {
        if (of_a.read(chunk_bytes) != of_b.read(chunk_bytes)) return false;
      }
      return true;
    } catch (const Error&) {
      if (rules_.strict) throw;
      return false;
    }
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
    const std::string key = rules_.split_by == "folder" ? fs::path(path).parent_path().string() : path;
    const double u = crc32c(key) / 4294967296.0;
    return u < rules_.validation ? "validation" : u < rules_.validation + rules_.test ? "test" : "train";
  }

  const CorpusRules& rules_;
  const CorpusProgress& progress_;
  std::optional<TextPattern> include_, exclude_, skip_if_;
  std::unordered_multimap<std::uint32_t, std::size_t> by_checksum_;
  std::uint64_t read_ = 0;
  Corpus corpus_;
};

}  // namespace

std::string text_of_line(std::string_view line, const std::string& source) {
  std::optional<std::string> text;
  const JsonLimits limits{.max_depth = 64, .max_token_bytes = std::size_t{1} << 31};
  std::set<std::string> names;
  parse_json_members(line, limits, source, 0, [&](JsonMember& member) {
    check(names.insert(member.name).second, "jsonl", "stands here again");
    if (member.name != "text") return;
    check(member.value.is_string(), "jsonl", "is ", member.value.kind(), "; a string is wanted");
    text = std::move(member.value.string());
  });
  check(text.has_value(), "jsonl", source, ": 'text' is missing");
  return std::move(*text);
}

JsonValue CorpusRules::json() const {
  return JsonValue::object({{"include", include},
                            {"exclude", exclude},
                            {"min_bytes", min_bytes},
                            {"max_bytes", max_bytes},
                            {"invalid", invalid},
                            {"skip_if", skip_if},
                            {"validation", validation},
                            {"test", test},
                            {"split_by", split_by}});
}

JsonValue Corpus::counts(std::int64_t kept) const {
  return JsonValue::object({{"found", found},
                            {"kept", kept},
                            {"dropped", JsonValue::object({{"path", by_path},
                                                           {"size", by_size},
                                                           {"invalid", by_invalid},
                                                           {"content", by_line},
                                                           {"equal", equal},
                                                           {"unreadable", unreadable}})}});
}

Corpus select_texts(const std::vector<CorpusSource>& sources, const CorpusRules& rules,
                    const CorpusProgress& progress) {
  const bool are_parts = rules.validation >= 0 && rules.test >= 0 && rules.validation + rules.test <= 1;
  check(are_parts, "text", "parts ", rules.validation, " and ", rules.test,
        " of the texts; each at least 0, at most 1 together");
  Selector selector(rules, progress);
  for (const CorpusSource& source : sources) {
    if (!selector.add_source(source)) return {};
  }
  return selector.take();
}

CorpusTextReader::CorpusTextReader(const CorpusText& text) : text_(text), reader_(text.file), size_(reader_.size()) {
  if (text.length > 0) {
    line_ = text_of_line(reader_.read_string(text.offset, text.length), reader_.name());
    size_ = line_.size();
  }
  check(size_ == text.bytes, "text", reader_.name(), ": has changed while it was read");
}

std::string CorpusTextReader::read(std::uint64_t most) {
  const std::uint64_t count = std::min(most, size_ - at_);
  std::string bytes = text_.length > 0 ? line_.substr(at_, count) : reader_.read_string(at_, count);
  at_ += count;
  checksum_ = crc32c(bytes, checksum_);
  check(!done() || checksum_ == text_.checksum, "text", reader_.name(), ": has changed while it was read");
  return bytes;
}

}  // namespace tally

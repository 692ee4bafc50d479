#include "tasks/text/encoded_split.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/error.hpp"
#include "core/io/checksum.hpp"
#include "core/io/reader.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

namespace fs = std::filesystem;

std::string tokens_path(const std::string& folder, const std::string& name) {
  return concat(folder, "/", name, ".bin");
}
std::string documents_path(const std::string& folder, const std::string& name) {
  return concat(folder, "/documents-", name, ".tsv");
}
std::string saved_path(const std::string& folder, const std::string& name) {
  return concat(folder, "/", name, ".saved.json");
}

// Of the first bytes of a file; nothing where it has fewer or is not there.
std::optional<std::uint32_t> checksum_of_file(const std::string& path, std::uint64_t bytes) {
  if (!fs::exists(path)) return std::nullopt;
  const FileReader file(path);
  if (file.size() < bytes) return std::nullopt;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  std::uint32_t sum = 0;
  for (std::uint64_t at = 0; at < bytes;) {
    const std::span<std::byte> part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), bytes - at));
    file.read(at, part);
    sum = crc32c(part, sum);
    at += part.size();
  }
  return sum;
}

}  // namespace

EncodedSplit::Saved EncodedSplit::read(const std::string& folder, const std::string& name) {
  const std::string path = saved_path(folder, name);
  if (!fs::exists(path)) return {};
  const JsonValue value = read_json(path);
  const Saved saved{.parts = value.integer("parts"),
                    .text_sum = static_cast<std::uint32_t>(value.integer("text_checksum")),
                    .token_sum = static_cast<std::uint32_t>(value.integer("token_checksum")),
                    .tokens = value.integer("tokens"),
                    .words = value.integer("words"),
                    .first = value.integer("first"),
                    .token_file_bytes = static_cast<std::uint64_t>(value.integer("token_file_bytes")),
                    .document_bytes = static_cast<std::uint64_t>(value.integer("document_bytes"))};
  // A machine that lost power may have kept the record and not the files.
  std::error_code error;
  const bool whole = checksum_of_file(tokens_path(folder, name) + ".tmp", saved.token_file_bytes) == saved.token_sum &&
                     fs::file_size(documents_path(folder, name) + ".tmp", error) >= saved.document_bytes && !error;
  return whole ? saved : Saved{};
}

EncodedSplit::EncodedSplit(const std::string& folder, const std::string& name, std::size_t token_bytes,
                           std::int32_t end_of_text, bool goes_on)
    : folder_(folder),
      name_(name),
      token_bytes_(token_bytes),
      end_of_text_(end_of_text),
      saved_(goes_on ? read(folder, name) : Saved{}),
      now_(saved_),
      tokens_(tokens_path(folder, name), saved_.token_file_bytes),
      documents_(documents_path(folder, name), saved_.document_bytes) {
  now_.parts = 0;
  now_.text_sum = 0;
}

void EncodedSplit::count_part(const TextPart& part) {
  now_.text_sum = crc32c(part.bytes, now_.text_sum);
  bytes_ += std::ssize(part.bytes);
  ++now_.parts;
  if (!part.last) return;
  ++texts_;
  if (part.text->file != last_file_) ++files_;
  last_file_ = part.text->file;
}

void EncodedSplit::pass_over(const TextPart& part) {
  count_part(part);
  check(now_.parts < saved_.parts || now_.text_sum == saved_.text_sum, "text", escape_for_print(folder_, 1000),
        ": the texts of '", name_, "' are others than those that were encoded before; remove the folder");
}

void EncodedSplit::add(const TextPart& part, const std::vector<std::int32_t>& ids, std::int64_t words) {
  if (part.first) {
    write({&end_of_text_, 1});
    now_.first = now_.tokens;
  }
  write(ids);
  now_.words += words;
  count_part(part);
  if (!part.last) return;
  const CorpusText& text = *part.text;
  const std::string line = concat(text.path, "\t", now_.first, "\t", now_.tokens - now_.first, "\t", text.bytes, "\n");
  documents_.write(line);
  now_.document_bytes += line.size();
}

void EncodedSplit::write(std::span<const std::int32_t> ids) {
  std::string packed;
  packed.reserve(ids.size() * token_bytes_);
  for (const std::int32_t id : ids) packed.append(reinterpret_cast<const char*>(&id), token_bytes_);
  tokens_.write(packed);
  now_.token_sum = crc32c(packed, now_.token_sum);
  now_.token_file_bytes += packed.size();
  now_.tokens += std::ssize(ids);
}

void EncodedSplit::save() {
  tokens_.sync();
  documents_.sync();
  write_file_atomically(saved_path(folder_, name_),
                        write_json(JsonValue::object({{"parts", now_.parts},
                                                      {"text_checksum", now_.text_sum},
                                                      {"token_checksum", now_.token_sum},
                                                      {"tokens", now_.tokens},
                                                      {"words", now_.words},
                                                      {"first", now_.first},
                                                      {"token_file_bytes", now_.token_file_bytes},
                                                      {"document_bytes", now_.document_bytes}})));
}

JsonValue EncodedSplit::finish() {
  if (texts_ > 0) write({&end_of_text_, 1});
  tokens_.finish();
  documents_.finish();
  return JsonValue::object({{"files", files_},
                            {"documents", texts_},
                            {"bytes", bytes_},
                            {"words", now_.words},
                            {"tokens", now_.tokens},
                            {"text_checksum", checksum_text(now_.text_sum)},
                            {"token_checksum", checksum_text(now_.token_sum)}});
}

void EncodedSplit::forget_saved() {
  std::error_code error;
  fs::remove(saved_path(folder_, name_), error);
}

}  // namespace tally

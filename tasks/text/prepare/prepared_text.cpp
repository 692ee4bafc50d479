#include "tasks/text/prepare/prepared_text.hpp"

#include <filesystem>
#include <limits>

#include "core/error.hpp"
#include "core/io/checksum.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

constexpr std::uint64_t max_tokenizer_bytes = std::uint64_t{1} << 30;

std::int64_t count_of(const JsonValue& object, std::string_view key) {
  const std::int64_t count = object.integer(key);
  check(count >= 0, "manifest", "'{}' is {}; a count is at least 0", key, count);
  return count;
}

TextSplit read_split(const JsonMember& member) {
  const JsonValue& split = member.value;
  const bool plain = !member.name.empty() &&
                     member.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
  check(plain, "manifest", "'{}' is no name of a split", escape_for_print(member.name));
  return {.name = member.name,
          .files = count_of(split, "files"),
          .documents = count_of(split, "documents"),
          .bytes = count_of(split, "bytes"),
          .words = count_of(split, "words"),
          .tokens = count_of(split, "tokens"),
          .text_checksum = split.string("text_checksum"),
          .token_checksum = split.string("token_checksum")};
}

TextManifest read_manifest(const std::string& path) {
  TextManifest manifest;
  manifest.record = read_json(path);
  try {
    const std::int64_t version = manifest.record.integer("version");
    check(version == 1, "manifest", "version {} is not known; only 1 is", version);
    for (const JsonMember& member : manifest.record.members("splits")) manifest.splits.push_back(read_split(member));
    const JsonValue& tokenizer = manifest.record.at("tokenizer");
    manifest.vocabulary = tokenizer.integer("vocabulary");
    check(1 <= manifest.vocabulary && manifest.vocabulary <= std::numeric_limits<std::int32_t>::max(), "manifest",
          "a vocabulary of {}", manifest.vocabulary);
    const std::int64_t end = tokenizer.integer("end_of_text");
    check(0 <= end && end < manifest.vocabulary, "manifest", "'end_of_text' is {}, and the vocabulary has {}", end,
          manifest.vocabulary);
    manifest.end_of_text = static_cast<std::int32_t>(end);
    manifest.tokenizer_checksum = tokenizer.string("checksum");
  } catch (const Error& error) {
    fail("manifest", "{}: {}", escape_for_print(path, 1000), error.what());
  }
  return manifest;
}

}  // namespace

const TextSplit& TextManifest::split(std::string_view name) const {
  std::string known;
  for (const TextSplit& split : splits) {
    if (split.name == name) return split;
    known += formatted("{}{}", known.empty() ? "" : ", ", split.name);
  }
  fail("text", "there is no split '{}'; there are: {}", escape_for_print(name), known.empty() ? "none" : known);
}

PreparedText::PreparedText(const std::string& folder) : folder_(folder) {
  const std::string manifest = folder + "/manifest.json";
  std::error_code unreadable;
  const bool there = std::filesystem::exists(manifest, unreadable);
  check(there || unreadable, "text", "{} is not there; 'tally prepare' makes such a folder",
        escape_for_print(manifest, 1000));
  try {
    manifest_ = read_manifest(manifest);
    check_files();
  } catch (const Error& error) {
    throw DamagedText(error.what());
  }
}

void PreparedText::check_files() const {
  const std::string tokenizer = read_whole_file(tokenizer_path(), max_tokenizer_bytes);
  const std::string checksum = checksum_text(crc32c(std::as_bytes(std::span(tokenizer))));
  check(checksum == manifest_.tokenizer_checksum, "text", "{}: its checksum is {}, and the manifest says {}",
        escape_for_print(tokenizer_path(), 1000), checksum, escape_for_print(manifest_.tokenizer_checksum));
  for (const TextSplit& split : manifest_.splits) {
    if (split.tokens > 0) (void)tokens(split.name);
  }
}

TokenFile PreparedText::tokens(std::string_view name) const {
  const TextSplit& split = manifest_.split(name);
  TokenFile file(formatted("{}/{}.bin", folder_, split.name), manifest_.vocabulary, TokenFormat::own);
  check(file.size() == split.tokens, "text", "{}: holds {} tokens, and the manifest says {}", file.name(), file.size(),
        split.tokens);
  return file;
}

}  // namespace tally

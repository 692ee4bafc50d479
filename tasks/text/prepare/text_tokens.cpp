#include "tasks/text/prepare/text_tokens.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.hpp"
#include "core/io/checksum.hpp"
#include "core/utf8.hpp"
#include "tasks/text/tokenizer.hpp"
#include "tasks/text/tokenizer_files.hpp"

namespace tally {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t max_tokenizer_bytes = std::uint64_t{1} << 30;

std::string shown_file(std::string_view path) { return escape_for_print(path, 1000); }

// Names used by nanoGPT and similar programs.
constexpr std::pair<const char*, const char*> file_names[] = {
    {"train", "train"}, {"validation", "validation"}, {"validation", "val"}, {"test", "test"}};

}  // namespace

bool is_prepared_text(const std::string& path) {
  std::error_code error;
  return fs::exists(path + "/manifest.json", error);
}

TextTokens::TextTokens(const TextSources& sources) : name_(sources.data) {
  std::error_code error;
  const bool files = !is_prepared_text(sources.data) &&
                     (fs::is_regular_file(sources.data, error) || !sources.tokenizer.empty() || sources.vocabulary > 0);
  files ? open_files(sources) : open_prepared(sources);
}

void TextTokens::open_prepared(const TextSources& sources) {
  check(is_prepared_text(sources.data), "text",
        "{}/manifest.json is not there; 'tally prepare' makes such a folder. What token files of other programs hold "
        "is said by --tokenizer FILE or --vocabulary N",
        shown_file(sources.data));
  for (const auto& [option, value] : {std::pair{"tokenizer", &sources.tokenizer},
                                      {"validation", &sources.validation},
                                      {"end-token", &sources.end_token}}) {
    check(value->empty(), "text", "{} {} means nothing beside {}, whose manifest says what it holds", option,
          shown_file(*value), shown_file(sources.data));
  }
  check(sources.token_type == "auto", "text", "token-type {} has no effect on {}, whose manifest names the type",
        sources.token_type, shown_file(sources.data));
  tokenizer_name_ = sources.data + "/tokenizer.json";
  const std::string manifest = sources.data + "/manifest.json";
  try {
    read_manifest(read_json(manifest), sources.data);
  } catch (const Error& error) {
    throw DamagedText(formatted("[manifest] {}: {}", shown_file(manifest), error.what()));
  }
}

void TextTokens::read_manifest(const JsonValue& manifest, const std::string& folder) {
  const std::int64_t version = manifest.integer("version");
  check(version == 1, "manifest", "version {} is not known; only 1 is", version);
  const JsonValue& tokenizer = manifest.at("tokenizer");
  tokenizer_sum_ = tokenizer.string("checksum");
  const std::string text = read_whole_file(tokenizer_name_, max_tokenizer_bytes), sum = checksum_text(crc32c(text));
  check(sum == tokenizer_sum_, "text", "{}: its checksum is {}, and the manifest says {}", shown_file(tokenizer_name_),
        sum, escape_for_print(tokenizer_sum_));
  tokenizer_.emplace(parse_tokenizer_json(text, tokenizer_name_));
  vocabulary_ = tokenizer.integer("vocabulary");
  check(tokenizer_->vocabulary() == vocabulary_, "text", "{} has {} tokens, and the manifest says {}",
        shown_file(tokenizer_name_), tokenizer_->vocabulary(), vocabulary_);
  const std::int64_t end = tokenizer.integer("end_of_text");
  check(0 <= end && end < vocabulary_, "manifest", "'end_of_text' is {}, and the vocabulary has {}", end, vocabulary_);
  end_of_text_ = static_cast<std::int32_t>(end);
  has_splits_ = !manifest.members("splits").empty();
  for (const auto& [name, split] : manifest.members("splits")) {
    check(!name.empty() && name.find('/') == name.npos, "manifest", "'{}' is no name of a split",
          escape_for_print(name));
    const std::int64_t tokens = split.integer("tokens");
    if (tokens == 0) continue;
    TokenFile file(formatted("{}/{}.bin", folder, name), vocabulary_, TokenFormat::own);
    check(file.size() == tokens, "text", "{}: holds {} tokens, and the manifest says {}", file.name(), file.size(),
          tokens);
    splits_.push_back({name, std::move(file)});
    sums_.try_emplace(name, Sum{.wanted = split.string("token_checksum")});
  }
}

void TextTokens::open_files(const TextSources& sources) {
  vocabulary_ = sources.vocabulary;
  if (!sources.tokenizer.empty()) {
    tokenizer_name_ = sources.tokenizer;
    TokenizerParts parts = read_tokenizer(sources.tokenizer);
    tokenizer_sum_ = checksum_text(crc32c(tokenizer_json(parts)));  // as in a prepared folder
    tokenizer_.emplace(std::move(parts));
    // A model may have more ids than its tokenizer, and token files of its own may contain them.
    vocabulary_ = std::max(vocabulary_, tokenizer_->vocabulary());
  }
  end_of_text_ = end_of(sources);
  check(vocabulary_ > 0, "text",
        "{} does not say what its tokens are; --tokenizer FILE does, or --vocabulary N how many there are",
        shown_file(sources.data));
  std::error_code error;
  if (!fs::is_directory(sources.data, error)) {
    of_one_file_ = sources.validation.empty();
    open_file(sources, of_one_file_ ? "test" : "train", sources.data);
    if (!of_one_file_) open_file(sources, "validation", sources.validation);
    return;
  }
  check(sources.validation.empty(), "text",
        "validation {} stands beside a folder, {}; beside a file it means something", shown_file(sources.validation),
        shown_file(sources.data));
  for (const auto& [split, stem] : file_names) {
    for (const char* ending : {".bin", ".npy"}) {
      const std::string path = formatted("{}/{}{}", sources.data, stem, ending);
      if (!fs::exists(path, error)) continue;
      check(!has(split), "text", "{} has two files of the split {}; one is {}", shown_file(sources.data), split,
            shown_file(path));
      open_file(sources, split, path);
    }
  }
  check(!splits_.empty(), "text",
        "{} holds neither manifest.json, as 'tally prepare' makes it, nor train, validation or test with .bin or .npy",
        shown_file(sources.data));
}

std::optional<std::int32_t> TextTokens::end_of(const TextSources& sources) const {
  const std::string& name = sources.end_token;
  if (tokenizer_ && name.empty()) return find_end_token(tokenizer_->parts(), sources.tokenizer);
  if (tokenizer_ && tokenizer_->special(name)) return tokenizer_->special(name);
  if (name.empty()) return std::nullopt;
  const std::optional<std::int32_t> id = token_id(name, vocabulary_);
  if (tokenizer_ && !id) return end_token(tokenizer_->parts(), name, sources.tokenizer);
  check(id.has_value(), "text", "end-token '{}' is no id in 0 to {}; names of tokens are known with --tokenizer FILE",
        escape_for_print(name, 60), vocabulary_ - 1);
  return id;
}

void TextTokens::open_file(const TextSources& sources, const std::string& split, const std::string& path) {
  splits_.push_back({split, TokenFile(path, vocabulary_, token_format(sources.token_type))});
  sums_.try_emplace(split);
}

const TokenFile* TextTokens::find(std::string_view split) const {
  const auto found = std::ranges::find(splits_, split, &Split::name);
  return found != splits_.end() ? &found->file : nullptr;
}

const TokenFile& TextTokens::tokens(std::string_view split) const {
  const TokenFile* const file = find(split);
  check(file != nullptr, "text", "{} has no tokens of the split '{}'", shown_file(name_), escape_for_print(split));
  return *file;
}

void TextTokens::verify(std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  if (!sums_.find(name)->second.wanted.empty()) (void)checksum_of(name);
}

std::string TextTokens::checksum(std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  return checksum_of(name);
}

const std::string& TextTokens::checksum_of(std::string_view name) const {
  const TokenFile& file = tokens(name);
  Sum& sum = sums_.find(name)->second;
  if (!sum.found.empty()) return sum.found;
  std::string found = checksum_text(file.checksum());
  if (!sum.wanted.empty() && found != sum.wanted) {
    throw DamagedText(
        formatted("[text] {}: its checksum is {}, and the manifest says {}: it has changed since it was made",
                  file.name(), found, escape_for_print(sum.wanted)));
  }
  return sum.found = std::move(found);
}

std::string TextTokens::record() const {
  constexpr std::int64_t at_end = 1 << 16;
  std::string record;
  for (const auto& [name, file] : splits_) {
    std::string checksum = sums_.find(name)->second.wanted;
    if (checksum.empty()) {
      const std::int64_t first = std::min(at_end, file.size()), last = std::min(at_end, file.size() - first);
      checksum = checksum_text(file.checksum(file.size() - last, last, file.checksum(0, first, 0)));
    }
    record +=
        formatted("{}{}: {} tokens, {}", record.empty() ? "" : "; ", name, file.size(), escape_for_print(checksum));
  }
  return record;
}

}  // namespace tally

#include "tasks/text/prepare/encoded_split.hpp"

#include <algorithm>

#include "core/io/checksum.hpp"

namespace tally {

EncodedSplit::EncodedSplit(const std::string& folder, const std::string& name, std::size_t token_bytes,
                           std::int32_t end_of_text)
    : token_bytes_(token_bytes),
      end_of_text_(end_of_text),
      tokens_(formatted("{}/{}.bin", folder, name)),
      documents_(formatted("{}/documents-{}.tsv", folder, name)) {}

void EncodedSplit::add(const CorpusText& text, std::string_view bytes, std::span<const std::int32_t> ids,
                       std::int64_t words) {
  write({&end_of_text_, 1});
  documents_.write(formatted("{}\t{}\t{}\t{}\n", text.path, tokens_written_, ids.size(), text.bytes));
  write(ids);
  text_sum_ = crc32c(bytes, text_sum_);
  bytes_ += std::ssize(bytes);
  words_ += words;
  ++texts_;
  if (text.file != last_file_) ++files_;
  last_file_ = text.file;
}

void EncodedSplit::write(std::span<const std::int32_t> ids) {
  constexpr std::size_t at_once = 1 << 18;
  std::string packed;
  for (std::size_t begin = 0; begin < ids.size(); begin += at_once) {
    packed.clear();
    for (const std::int32_t id : ids.subspan(begin, std::min(at_once, ids.size() - begin))) {
      packed.append(reinterpret_cast<const char*>(&id), token_bytes_);
    }
    tokens_.write(packed);
    token_sum_ = crc32c(packed, token_sum_);
  }
  tokens_written_ += std::ssize(ids);
}

JsonValue EncodedSplit::finish() {
  if (texts_ > 0) write({&end_of_text_, 1});
  tokens_.finish();
  documents_.finish();
  return JsonValue::object({{"files", files_},
                            {"documents", texts_},
                            {"bytes", bytes_},
                            {"words", words_},
                            {"tokens", tokens_written_},
                            {"text_checksum", checksum_text(text_sum_)},
                            {"token_checksum", checksum_text(token_sum_)}});
}

}  // namespace tally

#include "tasks/text/prepare/token_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "core/io/checksum.hpp"
#include "core/io/npy.hpp"

namespace tally {
namespace {

constexpr std::uint64_t llm_c_header_bytes = 1024;
constexpr std::int64_t chunk_tokens = 1 << 16;

std::int32_t word_of(std::string_view header, std::size_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, header.data() + index * sizeof value, sizeof value);
  return value;
}

// llm.c marks its kinds of files by dates in 2024 and leaves the rest of the header zero. A headerless file would match
// this only with four rare ids followed by 250 equal ones.
bool looks_like_llm_c(std::string_view header) {
  if (header.size() < llm_c_header_bytes) return false;
  const std::int32_t magic = word_of(header, 0);
  return magic > 20240000 && magic < 20250000 &&
         std::all_of(header.begin() + 12, header.end(), [](char c) { return c == 0; });
}

}  // namespace

TokenFormat token_format(std::string_view name) {
  const auto found = std::ranges::find(token_format_names, name);
  check(found != std::end(token_format_names), "tokens", "'{}' is no type of tokens", name);
  return static_cast<TokenFormat>(found - std::begin(token_format_names));
}

TokenFile::TokenFile(const std::string& path, std::int64_t vocabulary, TokenFormat format)
    : reader_(path), vocabulary_(vocabulary) {
  constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
  check(1 <= vocabulary && vocabulary <= largest, "tokens", "{}: a vocabulary of {} is not in 1 to {}", name(),
        vocabulary, largest);
  std::string begin;
  if (format != TokenFormat::own) {
    begin = reader_.read_string(0, std::min<std::uint64_t>(reader_.size(), llm_c_header_bytes));
  }
  if (begin.starts_with("\x93NUMPY")) {
    read_npy();
  } else if (looks_like_llm_c(begin)) {
    read_llm_c(begin);
  } else {
    read_headerless(format);
  }
  check(size_ > 0, "tokens", "{}: holds no token", name());
  const bool is_named = format == TokenFormat::uint16;
  check(element_bytes_ != 2 || is_named || vocabulary <= 65'536, "tokens",
        "{}: {} has no room for the ids of a vocabulary of {}", name(), format_, vocabulary);
}

void TokenFile::read_headerless(TokenFormat format) {
  is_guessed_ = format == TokenFormat::detect;
  const bool by_vocabulary = is_guessed_ || format == TokenFormat::own;
  const TokenFormat usual = token_bytes(vocabulary_) == 2 ? TokenFormat::uint16 : TokenFormat::uint32;
  const auto index = static_cast<std::size_t>(by_vocabulary ? usual : format);
  element_bytes_ = std::uint64_t{1} << (index - static_cast<std::size_t>(TokenFormat::uint8));
  format_ = formatted("headerless {}", token_format_names[index]);
  check(reader_.size() % element_bytes_ == 0, "tokens", "{}: has {} bytes, which is no whole number of {} tokens",
        name(), reader_.size(), format_);
  size_ = static_cast<std::int64_t>(reader_.size() / element_bytes_);
  if (is_guessed_) refuse_wider_ids();
}

// The upper half of a small id is zero. In a file of ids twice as wide, every second number is then 0.
void TokenFile::refuse_wider_ids() const {
  constexpr std::uint64_t least = 8, at_once = 4096;  // tokens
  const auto seem_wider = [&](std::uint64_t bytes) {
    const std::uint64_t count = reader_.size() / bytes;
    if (reader_.size() % (2 * bytes) != 0 || count < least) return false;
    bool all_zero = true;
    for (const std::uint64_t part : {std::uint64_t{0}, count / 2, count - std::min(count, at_once)}) {
      const std::uint64_t first = part / 2 * 2;
      const std::vector<std::uint64_t> found = numbers(first, std::min(at_once, count - first), bytes);
      for (std::size_t n = 0; n + 1 < found.size(); n += 2) {
        if (found[n + 1] != 0) return false;
        all_zero = all_zero && found[n] == 0;
      }
    }
    return !all_zero;
  };
  if (!seem_wider(element_bytes_)) return;
  const bool is_64 = element_bytes_ == 4 || seem_wider(4);
  fail("tokens",
       "{}: every second number is 0 if it is read as {}, so it seems to hold {}; --token-type {} reads it so, "
       "--token-type {} as it is; a .npy file holds its type",
       name(), format_, is_64 ? "int64" : "uint32", is_64 ? "int64" : "uint32",
       element_bytes_ == 2 ? "uint16" : "uint32");
}

std::vector<std::uint64_t> TokenFile::numbers(std::uint64_t first, std::uint64_t count, std::uint64_t bytes) const {
  const std::string read = reader_.read_string(first * bytes, count * bytes);
  std::vector<std::uint64_t> found(count);
  for (std::size_t n = 0; n < count; ++n) std::memcpy(&found[n], read.data() + n * bytes, bytes);
  return found;
}

void TokenFile::read_llm_c(std::string_view header) {
  const std::int32_t magic = word_of(header, 0), version = word_of(header, 1), count = word_of(header, 2);
  check(magic == 20240520 || magic == 20240801, "tokens",
        "{}: byte 0: magic {} of llm.c is no file of tokens; 20240520 and 20240801 are", name(), magic);
  const std::int32_t known = magic == 20240520 ? 1 : 7;
  check(version == known, "tokens", "{}: byte 4: version {}; with magic {} only {} is known", name(), version, magic,
        known);
  element_bytes_ = magic == 20240520 ? 2 : 4;
  begin_ = llm_c_header_bytes;
  format_ = element_bytes_ == 2 ? "llm.c uint16" : "llm.c uint32";
  const std::uint64_t bytes = reader_.size() - begin_;
  check(count >= 0 && bytes == element_bytes_ * static_cast<std::uint64_t>(count), "tokens",
        "{}: byte 8: a count of {} tokens of {} bytes, but {} bytes follow", name(), count, element_bytes_, bytes);
  size_ = count;
}

void TokenFile::read_npy() {
  static constexpr std::array<std::string_view, 5> types{"|u1", "<u2", "<u4", "<i4", "<i8"};
  const NpySequence sequence = read_npy_sequence(reader_, types);
  element_bytes_ = static_cast<std::uint64_t>(sequence.type.back() - '0');
  is_signed_ = sequence.type[1] == 'i';
  begin_ = sequence.data_begin;
  format_ = ".npy " + sequence.type;
  size_ = static_cast<std::int64_t>(sequence.size);
}

template <class Element>
void TokenFile::convert(std::int64_t first, std::span<const std::byte> bytes, std::span<std::int32_t> target) const {
  for (std::size_t index = 0; index < target.size(); ++index) {
    Element element{};
    std::memcpy(&element, bytes.data() + index * sizeof element, sizeof element);
    const bool known = std::cmp_greater_equal(element, 0) && std::cmp_less(element, vocabulary_);
    check(known, "tokens", "{}: token {} is {}, and the vocabulary has {}{}", name(),
          first + static_cast<std::int64_t>(index), element, vocabulary_,
          is_guessed_ ? formatted("; it was read as {} (--token-type names another type)", format_) : "");
    target[index] = static_cast<std::int32_t>(element);
  }
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> target) const {
  const auto count = static_cast<std::int64_t>(target.size());
  check(first >= 0 && first <= size_ && count <= size_ - first, "tokens",
        "{}: tokens {} to {} were asked for; there are {}", name(), first, first + count - 1, size_);
  std::vector<std::byte> bytes(element_bytes_ * static_cast<std::size_t>(std::min(count, chunk_tokens)));
  while (!target.empty()) {
    const std::span<std::int32_t> part = target.first(std::min<std::size_t>(target.size(), chunk_tokens));
    const std::span<std::byte> read(bytes.data(), element_bytes_ * part.size());
    reader_.read(begin_ + element_bytes_ * static_cast<std::uint64_t>(first), read);
    switch (element_bytes_) {
      case 1: convert<std::uint8_t>(first, read, part); break;
      case 2: convert<std::uint16_t>(first, read, part); break;
      case 4: is_signed_ ? convert<std::int32_t>(first, read, part) : convert<std::uint32_t>(first, read, part); break;
      default: convert<std::int64_t>(first, read, part);
    }
    first += static_cast<std::int64_t>(part.size());
    target = target.subspan(part.size());
  }
}

std::int32_t TokenFile::at(std::int64_t index) const {
  std::int32_t token = 0;
  read(index, {&token, 1});
  return token;
}

std::uint32_t TokenFile::checksum(std::int64_t first, std::int64_t count, std::uint32_t previous) const {
  std::uint32_t sum = previous;
  const std::uint64_t begin = begin_ + element_bytes_ * static_cast<std::uint64_t>(first);
  const std::uint64_t end = begin + element_bytes_ * static_cast<std::uint64_t>(count);
  std::vector<std::byte> chunk(std::min<std::uint64_t>(std::uint64_t{1} << 20, end - begin));
  for (std::uint64_t offset = begin; offset < end; offset += chunk.size()) {
    chunk.resize(std::min<std::uint64_t>(chunk.size(), end - offset));
    reader_.read(offset, chunk);
    sum = crc32c(chunk, sum);
  }
  return sum;
}

std::string packed_tokens(std::span<const std::int32_t> ids, std::size_t token_bytes) {
  std::string packed;
  packed.reserve(ids.size() * token_bytes);
  for (const std::int32_t id : ids) packed.append(reinterpret_cast<const char*>(&id), token_bytes);
  return packed;
}

}  // namespace tally

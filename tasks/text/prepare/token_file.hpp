// Files of token ids, from tally and other programs:
//   headerless   little-endian unsigned integers (nanoGPT's uint16), or int64
//   llm.c        256 int32: magic 20240520, version 1, count, then uint16; or magic 20240801, version 7, count, uint32
//   .npy         one dimension of |u1, <u2, <u4, <i4 or <i8 (core/io/npy.hpp)
// A headerless file does not hold its type. Unless the caller names it, it is uint16, or uint32 for a vocabulary over
// 65,536, and a file that looks like wider ids is refused.
// Opening a file reads only the header and a few stretches. Nothing is cached: each window is read from the system's
// page cache. (A mapping would make the same copies, but its pages count as the program's memory. If the file were
// truncated, SIGBUS would end the program instead of an Error.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/io/reader.hpp"

namespace tally {

// Files whose contents contradict their manifest. No other command line can fix that.
class DamagedText : public Error {
 public:
  using Error::Error;
};

// detect: by the header, or headerless as above. uint8 to int64: by the header, or headerless of this type. own:
// headerless as tally writes it, whatever the first bytes are.
enum class TokenFormat { detect, uint8, uint16, uint32, int64, own };
// Values, in the order of TokenFormat, and help of an option that names a format.
inline constexpr std::string_view token_format_names[] = {"auto", "uint8", "uint16", "uint32", "int64"};
inline constexpr const char* token_format_help =
    "integer type of a token file without a header (uint32 also reads int32); auto: uint16, or uint32 for a "
    "vocabulary above 65,536";
// Throws Error for another name.
TokenFormat token_format(std::string_view name);

class TokenFile {
 public:
  // `vocabulary`: ids are 0 to vocabulary - 1. Throws Error naming file and byte for a file without tokens, a size that
  // is not a whole number of tokens and a wrong header. Also for uint16 with a vocabulary of more than 65,536, unless
  // it was named, and with `detect` for a headerless file in which every second number is 0.
  TokenFile(const std::string& path, std::int64_t vocabulary, TokenFormat format = TokenFormat::detect);

  const std::string& name() const { return reader_.name(); }  // the path, safe to print
  std::int64_t size() const { return size_; }                 // in tokens, at least 1
  std::int64_t vocabulary() const { return vocabulary_; }
  // "headerless uint16", "llm.c uint32", ".npy <i4".
  const std::string& format() const { return format_; }

  // Reads tokens first, first + 1, ... Throws Error naming file and token for a read past the end, an id outside the
  // vocabulary, and a file that has shrunk since it was opened. Threads may read at the same time.
  void read(std::int64_t first, std::span<std::int32_t> target) const;
  std::int32_t at(std::int64_t index) const;

  std::int64_t element_bytes() const { return static_cast<std::int64_t>(element_bytes_); }  // of a token in the file
  // CRC-32C of the bytes of all tokens, in file order.
  std::uint32_t checksum() const { return checksum(0, size_, 0); }
  // The same for tokens first .. first + count - 1, continuing from the checksum `previous`.
  std::uint32_t checksum(std::int64_t first, std::int64_t count, std::uint32_t previous) const;

 private:
  void read_llm_c(std::string_view header);
  void read_npy();
  void read_headerless(TokenFormat format);
  void refuse_wider_ids() const;
  std::vector<std::uint64_t> numbers(std::uint64_t first, std::uint64_t count, std::uint64_t bytes) const;
  template <class Element>
  void convert(std::int64_t first, std::span<const std::byte> bytes, std::span<std::int32_t> target) const;

  FileReader reader_;
  std::int64_t vocabulary_ = 0, size_ = 0;
  std::uint64_t begin_ = 0;  // byte of the first token
  std::uint64_t element_bytes_ = 2;
  bool is_signed_ = false, is_guessed_ = false;
  std::string format_;
};

// Bytes of an id in our files.
inline std::size_t token_bytes(std::int64_t vocabulary) { return vocabulary <= 65'536 ? 2 : 4; }
// The bytes of ids in such a file.
std::string packed_tokens(std::span<const std::int32_t> ids, std::size_t token_bytes);

}  // namespace tally

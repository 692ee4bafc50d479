// Files of token ids, ours and those of other programs:
//   headerless   little-endian uint16, or uint32 where the vocabulary is over 65,536 (ours; nanoGPT's)
//   llm.c        256 int32: magic 20240520, version 1, count, then uint16; or magic 20240801, version 7, count, uint32
//   .npy         one dimension of <u2, <u4, <i4 or <i8 (core/io/npy.hpp)
// Nothing but the header is read when a file is opened, and nothing of it is kept: a window is read from the system's
// page cache when it is asked for. (A mapping would come to the same copies, but what a mapping has touched counts as
// the program's memory, and a file that is cut would end it with SIGBUS, where here it is an Error.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/io/reader.hpp"

namespace tally {

enum class TokenFormat { detect, headerless };

class TokenFile {
 public:
  // `vocabulary`: ids are 0 to vocabulary - 1. `format`: by the first bytes, or headerless whatever they are. Throws
  // Error naming file and byte for a file without tokens, one whose size is no whole number of them, a header that is
  // wrong, and uint16 with a vocabulary of more than 65,536.
  TokenFile(const std::string& path, std::int64_t vocabulary, TokenFormat format = TokenFormat::detect);

  const std::string& name() const { return reader_.name(); }  // the path, safe to print
  std::int64_t size() const { return size_; }                 // in tokens, at least 1
  std::int64_t vocabulary() const { return vocabulary_; }
  // "headerless uint16", "llm.c uint32", ".npy <i4".
  const std::string& format() const { return format_; }

  // Tokens first, first + 1, ... Throws Error naming file and token for what is past the end, an id that is not in the
  // vocabulary, and a file that has become shorter since it was opened. Threads may read at the same time.
  void read(std::int64_t first, std::span<std::int32_t> target) const;
  std::int32_t at(std::int64_t index) const;

  std::int64_t element_bytes() const { return static_cast<std::int64_t>(element_bytes_); }  // of a token in the file
  // CRC-32C of the bytes of all tokens as they lie in the file.
  std::uint32_t checksum() const { return checksum(0, size_, 0); }
  // Of tokens first .. first + count - 1 behind those that gave `previous`.
  std::uint32_t checksum(std::int64_t first, std::int64_t count, std::uint32_t previous) const;
  // Reads all tokens; throws as read() does.
  void check_ids() const;

 private:
  void read_llm_c(std::string_view header);
  void read_npy();
  template <class Element>
  void convert(std::int64_t first, std::span<const std::byte> bytes, std::span<std::int32_t> target) const;

  FileReader reader_;
  std::int64_t vocabulary_ = 0, size_ = 0;
  std::uint64_t begin_ = 0;  // byte of the first token
  std::uint64_t element_bytes_ = 2;
  bool is_signed_ = false;
  std::string format_;
};

// Bytes of an id in our files.
inline std::size_t token_bytes(std::int64_t vocabulary) { return vocabulary <= 65'536 ? 2 : 4; }

}  // namespace tally

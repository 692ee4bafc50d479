#include "core/io/reader.hpp"

#include <sys/stat.h>

#include <array>
#include <limits>

#include "core/io/checksum.hpp"
#include "core/utf8.hpp"
#include "tests/core/io_files.hpp"

namespace tally::io_reader_test {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

TEST(FileReader, ReadsRanges) {
  const TemporaryFolder folder;
  const FileReader reader(folder.file("a", "0123456789"));
  EXPECT_EQ(reader.size(), 10U);
  EXPECT_EQ(reader.read_string(0, 10), "0123456789");
  EXPECT_EQ(reader.read_string(3, 4), "3456");
  EXPECT_EQ(reader.read_string(10, 0), "");
}

TEST(FileReader, RefusesWhatIsNotAFile) {
  const TemporaryFolder folder;
  EXPECT_ERROR(FileReader(folder.path()), "is a folder, not a file");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_ERROR(FileReader{pipe}, "pipe: is a pipe, not a file");  // and the test ends, although the pipe has no writer
  EXPECT_ERROR(FileReader("/dev/zero"), "/dev/zero: is a device, not a file");
  EXPECT_ERROR(FileReader(folder.file("absent")), "absent: cannot be opened: No such file");
  EXPECT_ERROR(FileReader(""), "cannot be opened");
  const std::string cut = folder.file("a", "content");
  EXPECT_ERROR(FileReader(cut + std::string("\0b", 2)), "zero byte");
  EXPECT_ERROR(FileReader("a\n\x1b[31m"), "a\\n\\x1b[31m: cannot be opened");
}

TEST(FileReader, RefusesRangesPastTheEndBeforeMemoryIsTaken) {
  const TemporaryFolder folder;
  const FileReader reader(folder.file("a", "0123456789"));
  EXPECT_ERROR(reader.read_string(0, 11), "11 bytes at byte 0 lie past the end; the file has 10 bytes");
  EXPECT_ERROR(reader.read_string(11, 0), "past the end");
  EXPECT_ERROR(reader.read_string(0, largest), "past the end");
  EXPECT_ERROR(reader.read_string(largest, 1), "past the end");
  EXPECT_ERROR(reader.read_string(5, largest - 4), "past the end");  // the sum wraps to 0
  EXPECT_ERROR(reader.read_string(1, std::uint64_t{1} << 62), "past the end");
}

TEST(FileReader, NoticesAFileThatShrinks) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a", std::string(100000, 'x'));
  const FileReader reader(path);
  std::filesystem::resize_file(path, 60000);
  EXPECT_EQ(reader.read_string(0, 60000).size(), 60000U);
  EXPECT_ERROR(reader.read_string(0, 100000), "a: ends at byte 60000; it had 100000 bytes when it was opened");
  EXPECT_ERROR(reader.read_string(70000, 10), "ends at byte 70000");
}

TEST(FileReader, WholeFileUpToALimit) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a", "0123456789");
  EXPECT_EQ(read_whole_file(path, 10), "0123456789");
  EXPECT_ERROR(read_whole_file(path, 9), "a: has 10 bytes; at most 9 are read here");
  EXPECT_EQ(read_whole_file(folder.file("empty", ""), 9), "");
}

std::string problem_of(const std::vector<std::int64_t>& sizes) {
  return error_of([&] { shape_from_file(sizes, 4); });
}

TEST(ShapeFromFile, KeepsWhatFits) {
  const std::vector<std::int64_t> shapes[] = {{}, {2, 0, 3}, {1, 2, 3, 4, 5, 6, 7, 8}, {std::int64_t{1} << 31, 0}};
  for (const auto& sizes : shapes) EXPECT_EQ(problem_of(sizes), "");
  EXPECT_EQ(shape_from_file(shapes[1], 4), Shape({2, 0, 3}));
}

TEST(ShapeFromFile, RefusesTheRest) {
  constexpr std::int64_t half = std::int64_t{1} << 31;
  EXPECT_EQ(problem_of({1, 1, 1, 1, 1, 1, 1, 1, 1}), "[shape] rank 9 is over 8");
  EXPECT_EQ(problem_of({3, -1}), "[shape] size -1 is not in 0 to 2^31");
  EXPECT_EQ(problem_of({half + 1}), "[shape] size 2147483649 is not in 0 to 2^31");
  EXPECT_EQ(problem_of({0, half + 1}), "[shape] size 2147483649 is not in 0 to 2^31");
  EXPECT_EQ(problem_of({std::numeric_limits<std::int64_t>::max()}),
            "[shape] size 9223372036854775807 is not in 0 to 2^31");
  constexpr auto too_many = "[shape] the product of the sizes does not fit 63 bits";
  EXPECT_EQ(problem_of({half, half}), too_many);           // 2^62 elements of 4 bytes
  EXPECT_EQ(problem_of({half, half, 4}), too_many);        // wraps to 0
  EXPECT_EQ(problem_of({0, half, half, half}), too_many);  // a zero next to huge numbers
  EXPECT_EQ(problem_of({half, half, half, 0}), too_many);
}

TEST(Utf8, FindsTheFirstWrongByte) {
  const std::string_view good[] = {"",
                                   "plain text, long enough",
                                   "\u00e9\u20ac\U0001f600",
                                   "\xf4\x8f\xbf\xbf",
                                   "\xed\x9f\xbf",
                                   "\xee\x80\x80",
                                   "12345678\u00e9"};
  for (const auto text : good) EXPECT_EQ(find_invalid_utf8(text), std::string_view::npos) << text;
  const std::string_view bad[] = {
      "\x80",  // a continuation without a beginning
      "\xbf",
      "\xc0\x80",  // overlong
      "\xc1\xbf",
      "\xe0\x9f\xbf",
      "\xf0\x8f\xbf\xbf",
      "\xed\xa0\x80",  // surrogates
      "\xed\xbf\xbf",
      "\xf4\x90\x80\x80",  // over U+10FFFF
      "\xf5\x80\x80\x80",
      "\xff",
      "\xc3",  // cut
      "\xe2\x82",
      "\xf0\x9f\x98",
      "\xc3(",
      "\xe2\x28\xa1",
  };
  for (const auto text : bad) {
    EXPECT_EQ(find_invalid_utf8(text), 0U) << escape_for_print(text);
    EXPECT_EQ(find_invalid_utf8("0123456789\u00e9" + std::string(text)), 12U) << escape_for_print(text);
  }
}

TEST(Utf8, EveryCodePointIsWrittenAsItIsRead) {
  for (char32_t code = 0; code <= 0x10ffff; code += code < 0x3000 ? 1 : 37) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    std::string text;
    append_utf8(text, code);
    ASSERT_EQ(find_invalid_utf8(text), std::string_view::npos) << static_cast<std::uint32_t>(code);
    ASSERT_EQ(text.size(), code < 0x80 ? 1U : code < 0x800 ? 2U : code < 0x10000 ? 3U : 4U);
  }
}

TEST(EscapeForPrint, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(escape_for_print("blocks.0.weight \u00e9\u4e2d"), "blocks.0.weight \u00e9\u4e2d");
  EXPECT_EQ(escape_for_print("\x1b[2J\n\r\t\b\x7f"), "\\x1b[2J\\n\\r\\t\\x08\\x7f");
  EXPECT_EQ(escape_for_print(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escape_for_print("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(escape_for_print("a\\nb"), "a\\\\nb");
  EXPECT_EQ(escape_for_print("\u202eabc\u0085\u2028"), "\\u202eabc\\u0085\\u2028");
  EXPECT_EQ(escape_for_print(std::string(1000, 'x'), 3), "xxx... (1000 bytes)");
  EXPECT_EQ(escape_for_print("xxx", 3), "xxx");
}

TEST(Text, IsUtf8AndNotEmpty) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_text(folder.file("a", "caf\u00e9\n"), 100), "caf\u00e9\n");
  EXPECT_ERROR(read_text(folder.file("empty", ""), 100), "empty: is empty");
  EXPECT_ERROR(read_text(folder.file("latin", "0123456789 caf\xe9\n"), 100), "latin: byte 14 is not UTF-8");
  EXPECT_ERROR(read_text(folder.file("long", std::string(101, 'x')), 100), "long: has 101 bytes; at most 100");
  EXPECT_ERROR(read_text(folder.path(), 100), "is a folder");
}

std::uint32_t crc_of(std::string_view text, std::uint32_t previous = 0) {
  return crc32c(std::as_bytes(std::span(text)), previous);
}

// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(Checksum, KnownAnswers) {
  EXPECT_EQ(crc_of("123456789"), 0xe3069283U);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(crc_of(rising), 0x46dd794eU);
  EXPECT_EQ(crc_of(""), 0U);
  EXPECT_EQ(checksum_text(0x0069283fU), "0069283f");
}

TEST(Checksum, GoesOnFromAnyPlace) {
  const std::string text = "the quick brown fox jumps over the lazy dog, twice and thrice";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc_of(text.substr(cut), crc_of(text.substr(0, cut))), crc_of(text)) << cut;
  }
}

}  // namespace tally::io_reader_test

#include "tasks/text/prepare/token_file.hpp"

#include <vector>

#include "core/io/checksum.hpp"
#include "tests/core/io_files.hpp"

namespace tally::token_file_test {

template <class T>
std::string bytes_of_tokens(const std::vector<T>& tokens) {
  std::string bytes;
  for (const T token : tokens) bytes += little_endian(token);
  return bytes;
}

std::string llm_c(std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& data) {
  std::string bytes = little_endian(magic) + little_endian(version) + little_endian(count);
  bytes.resize(1024, '\0');
  return bytes + data;
}

std::string npy(std::string_view type, std::string_view shape, const std::string& data) {
  const std::string header = formatted("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}\n", type, shape);
  return formatted("{}{}{}{}", std::string_view("\x93NUMPY\1\0", 8),
                   little_endian(static_cast<std::uint16_t>(header.size())), header, data);
}

class Tokens : public ::testing::Test {
 protected:
  std::vector<std::int32_t> read(const std::string& bytes, std::int64_t vocabulary) {
    const TokenFile file(folder_.file("a.bin", bytes), vocabulary);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
    file.read(0, tokens);
    format_ = file.format();
    return tokens;
  }
  void expect_refused(const std::string& bytes, std::int64_t vocabulary, std::string_view message) {
    EXPECT_ERROR(read(bytes, vocabulary), message);
    EXPECT_ERROR(read(bytes, vocabulary), "a.bin");
  }

  TemporaryFolder folder_;
  std::string format_;
  const std::vector<std::int32_t> wanted_ = {5, 0, 65'535, 7};
  const std::string small_ = bytes_of_tokens<std::uint16_t>({5, 0, 65'535, 7});
  const std::string large_ = bytes_of_tokens<std::uint32_t>({5, 0, 65'535, 7});
};

TEST_F(Tokens, EveryFormatGivesTheSameTokens) {
  EXPECT_EQ(read(small_, 65'536), wanted_);
  EXPECT_EQ(format_, "headerless uint16");
  EXPECT_EQ(read(large_, 65'537), wanted_);
  EXPECT_EQ(format_, "headerless uint32");
  EXPECT_EQ(read(llm_c(20240520, 1, 4, small_), 65'536), wanted_);
  EXPECT_EQ(format_, "llm.c uint16");
  EXPECT_EQ(read(llm_c(20240801, 7, 4, large_), 70'000), wanted_);
  EXPECT_EQ(format_, "llm.c uint32");
  EXPECT_EQ(read(npy("<u2", "(4,)", small_), 65'536), wanted_);
  EXPECT_EQ(read(npy("<u4", "(4,)", large_), 65'536), wanted_);
  EXPECT_EQ(read(npy("<i4", "(4,)", large_), 65'536), wanted_);
  EXPECT_EQ(read(npy("<i8", "(4,)", bytes_of_tokens<std::int64_t>({5, 0, 65'535, 7})), 65'536), wanted_);
  EXPECT_EQ(format_, ".npy <i8");
  const std::vector<std::int32_t> bytes = {5, 0, 255};
  EXPECT_EQ(read(npy("|u1", "(3,)", "\5" + std::string("\0\377", 2)), 257), bytes);
}

// Ids below 2^16 in files of each type: read as the type that is named, or not at all, but never as other ids.
TEST_F(Tokens, TypesAreNamedOrRefused) {
  std::vector<std::int32_t> ids(5000);
  for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = static_cast<std::int32_t>(t * t % 251);
  const auto bytes_as = [&]<class T>(T) { return bytes_of_tokens(std::vector<T>(ids.begin(), ids.end())); };
  const std::vector<std::pair<std::string, std::string>> files = {{"uint8", bytes_as(std::uint8_t{})},
                                                                  {"uint16", bytes_as(std::uint16_t{})},
                                                                  {"uint32", bytes_as(std::uint32_t{})},
                                                                  {"int64", bytes_as(std::int64_t{})}};
  for (const auto& [type, bytes] : files) {
    const std::string path = folder_.file(type, bytes);
    for (const std::int64_t vocabulary : {257, 65'536, 70'000}) {
      const TokenFile file(path, vocabulary, token_format(type));
      ASSERT_EQ(file.size(), 5000) << type;
      std::vector<std::int32_t> read(ids.size());
      file.read(0, read);
      EXPECT_EQ(read, ids) << type;
    }
  }
  const auto guess = [&](const std::string& type, std::int64_t vocabulary) {
    const TokenFile file(folder_.file(type), vocabulary);
    std::vector<std::int32_t> all(static_cast<std::size_t>(file.size()));
    file.read(0, all);
    return file.size();
  };
  EXPECT_EQ(guess("uint16", 257), 5000);
  EXPECT_EQ(guess("uint32", 70'000), 5000);
  EXPECT_ERROR(guess("uint32", 257),
               "every second number is 0 if it is read as headerless uint16, so it seems to hold "
               "uint32; --token-type uint32 reads it so, --token-type uint16 as it is");
  EXPECT_ERROR(guess("int64", 257), "--token-type int64 reads it so");
  EXPECT_ERROR(guess("int64", 70'000), "--token-type int64 reads it so, --token-type uint32 as it is");
  EXPECT_ERROR(guess("uint8", 257), "it was read as headerless uint16 (--token-type names another type)");
  EXPECT_ERROR(guess("uint16", 70'000), "it was read as headerless uint32 (--token-type names another type)");
  // A header gives the type, even if another is named; own files have no header.
  EXPECT_EQ(TokenFile(folder_.file("c", llm_c(20240520, 1, 4, small_)), 65'536, TokenFormat::uint32).size(), 4);
  EXPECT_EQ(TokenFile(folder_.file("uint32"), 257, TokenFormat::own).size(), 10'000);
  // Zeros where the file begins are zeros in every type, and a few tokens prove nothing.
  EXPECT_EQ(TokenFile(folder_.file("z", std::string(40'000, '\0') + files[1].second), 257).size(), 25'000);
  EXPECT_EQ(TokenFile(folder_.file("few", bytes_of_tokens<std::uint16_t>({5, 0, 6, 0})), 257).size(), 4);
  EXPECT_ERROR(token_format("float"), "'float' is no type of tokens");
}

TEST_F(Tokens, WindowsAndSingleTokens) {
  std::vector<std::uint16_t> tokens(200'000);
  for (std::size_t index = 0; index < tokens.size(); ++index) tokens[index] = static_cast<std::uint16_t>(index % 1021);
  const std::string bytes = bytes_of_tokens(tokens);
  const TokenFile file(folder_.file("a.bin", bytes), 1021);
  EXPECT_EQ(file.size(), 200'000);
  EXPECT_EQ(file.at(199'999), 199'999 % 1021);
  EXPECT_EQ(file.checksum(), crc32c(std::as_bytes(std::span(bytes))));
  std::vector<std::int32_t> window(150'000);
  file.read(1'234, window);
  for (std::size_t index = 0; index < window.size(); ++index) {
    ASSERT_EQ(window[index], static_cast<std::int32_t>((index + 1'234) % 1021));
  }
  EXPECT_ERROR(file.read(50'001, window), "tokens 50001 to 200000 were asked for; there are 200000");
  EXPECT_ERROR(file.at(-1), "asked for");
  EXPECT_ERROR(TokenFile(file.name(), 1020).read(0, window), "token 1020 is 1020, and the vocabulary has 1020");
}

TEST_F(Tokens, WhatIsWrongIsNamed) {
  expect_refused("", 300, "holds no token");
  expect_refused("abc", 300, "3 bytes, which is no whole number of headerless uint16");
  expect_refused(small_, 65'535, "token 2 is 65535, and the vocabulary has 65535");
  expect_refused(llm_c(20240521, 1, 4, small_), 300, "byte 0: magic 20240521");
  expect_refused(llm_c(20240520, 2, 4, small_), 300, "byte 4: version 2");
  expect_refused(llm_c(20240520, 1, 5, small_), 300, "byte 8: a count of 5 tokens of 2 bytes, but 8 bytes follow");
  expect_refused(llm_c(20240520, 1, -4, small_), 300, "byte 8: a count of -4");
  expect_refused(llm_c(20240520, 1, 4, small_), 65'537, "no room for the ids");
  expect_refused(npy("<u2", "(4,)", small_), 65'537, "no room for the ids");
  expect_refused(npy("<u2", "(5,)", small_), 300, "5 elements of 2 bytes are promised");
  expect_refused(npy("<f4", "(4,)", large_), 300, "only |u1, <u2, <u4, <i4 and <i8");
  expect_refused(npy("<i4", "(2,)", bytes_of_tokens<std::int32_t>({5, -3})), 300, "token 1 is -3");
  expect_refused(npy("<i8", "(1,)", bytes_of_tokens<std::int64_t>({std::int64_t{1} << 32})), 300,
                 "token 0 is 4294967296");
  EXPECT_ERROR(TokenFile(folder_.path(), 300), "a folder, not a file");
  EXPECT_ERROR(TokenFile(folder_.file("none"), 300), "cannot be opened");
}

TEST_F(Tokens, AFileThatIsCutIsAnError) {
  const std::string path = folder_.file("a.bin", small_);
  const TokenFile file(path, 65'536);
  std::filesystem::resize_file(path, 4);
  EXPECT_EQ(file.at(1), 0);
  EXPECT_ERROR(file.at(2), "has become shorter");
  std::filesystem::resize_file(path, 100);
  EXPECT_EQ(file.size(), 4);
}

}  // namespace tally::token_file_test

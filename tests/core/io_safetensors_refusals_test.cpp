// Hostile and damaged safetensors files.
#include <sys/stat.h>

#include <filesystem>
#include <limits>

#include "core/device/allocator.hpp"
#include "tests/core/io_safetensors.hpp"

namespace tally::io_safetensors_refusals_test {

class SafetensorsRefusals : public Safetensors {};

TEST_F(SafetensorsRefusals, OfWrongHeaderLengths) {
  const std::string good = file_bytes("{" + entry("x", "F32", "[2]", "[0,8]") + "}", 8);
  ASSERT_NO_THROW(open(good));
  const auto with_length = [&](std::uint64_t length) { return little_endian(length) + good.substr(8); };
  constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  expect_refused("", "has 0 bytes, fewer than the 8");
  for (const auto& [length, message] : {std::pair<std::uint64_t, const char*>{0, "header length 0 does not fit"},
                                        {1, "header length 1 does not fit"},
                                        {good.size() - 7, "does not fit a file of"},
                                        {16 << 20, "does not fit a file of"},
                                        {(16 << 20) + 1, "header length 16777217 is over 16777216"},
                                        {largest - 7, "header length 18446744073709551608 is over"},
                                        {largest, "header length 18446744073709551615 is over"}}) {
    expect_refused(with_length(length), message);
  }
}

TEST_F(SafetensorsRefusals, OfWhatIsNotAFile) {
  EXPECT_ERROR(SafetensorsFile::open(folder_.path()), "is a folder");
  ASSERT_EQ(::mkfifo(folder_.file("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(SafetensorsFile::open(folder_.file("pipe")), "is a pipe");
}

TEST_F(SafetensorsRefusals, OfAFileThatShrinks) {
  const std::string path = folder_.file("a.safetensors");
  write_safetensors(path, {{"x", Tensor::zeros({1000})}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_ERROR(file.read("x"), "has become shorter since");
}

TEST_F(SafetensorsRefusals, OfHeadersThatAreNotStrictJson) {
  expect_header_refused("{\"a\":" + std::string(100000, '['), "byte 16: nested deeper than 4");
  expect_header_refused("{}x", "byte 10: syntax error");
  expect_header_refused("[]", "byte 8: expected an object");
  expect_entry_refused("F32", "[1e3]", "[0,8]", "the number 1e3 is no integer");
  expect_entry_refused("F32", "[2]", "[0,8e0]", "the number 8e0 is no integer");
  expect_entry_refused("F32", "[2]", "[0,18446744073709551615]", "does not fit 64 bits");
  expect_header_refused("{" + entry("x", "F32", "[2]", "[0,8]") + "," + entry("x", "F32", "[2]", "[0,8]") + "}",
                        "the name 'x' stands there twice");
  expect_header_refused("{" + entry("x", "F32", "[2]", "[0,8]") + "," + entry("\\u0078", "F32", "[2]", "[0,8]") + "}",
                        "the name 'x' stands there twice");
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})",
                        "'__metadata__': [header] the name stands here again", 0);
}

TEST_F(SafetensorsRefusals, OfEntriesThatAreNotAsWritten) {
  expect_header_refused(R"({"x":1})", "byte 9: 'x': [json] expected an object");
  expect_header_refused(R"({"x":{}})", "byte 9: 'x': [json] 'dtype' is missing");
  expect_header_refused(R"({"x":{"dtype":"F32","data_offsets":[0,8]}})", "'shape' is missing");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[2]}})", "'data_offsets' is missing");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":0}})", "unknown key 'extra'");
  expect_header_refused(R"({"x":{"dtype":1,"shape":[2],"data_offsets":[0,8]}})", "'dtype' must be a string");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "expected an array");
  expect_header_refused(R"({"__metadata__":[]})", "'__metadata__': [json] expected an object", 0);
  expect_header_refused(R"({"__metadata__":{"a":1}})", "'__metadata__': [json] expected a string", 0);
  expect_entry_refused("F33", "[2]", "[0,8]", "unknown type 'F33'");
  expect_entry_refused("F32", "[[2]]", "[0,8]", "expected an integer");
  expect_entry_refused("F32", "[2]", "[0,8,8]", "data_offsets must be two numbers");
  expect_entry_refused("F32", "[2]", "[8]", "data_offsets must be two numbers");
  expect_header_refused("{" + entry("a\\u001b[2J", "F33", "[2]", "[0,8]") + "}", "'a\\x1b[2J': ");
}

TEST_F(SafetensorsRefusals, OfOffsetsThatDoNotFit) {
  expect_entry_refused("F32", "[2]", "[8,0]",
                       "byte 9: 'x': [header] data_offsets must be two numbers, rising, within the 8 bytes");
  expect_entry_refused("F32", "[2]", "[-8,0]", "data_offsets must be");
  expect_entry_refused("F32", "[3]", "[0,12]", "data_offsets must be");
  expect_entry_refused("F32", "[2]", "[8,16]", "data_offsets must be");
  expect_entry_refused("F32", "[2]", "[9223372036854775800,9223372036854775807]", "data_offsets must be");
  expect_entry_refused("F32", "[2]", "[0,4]", "F32 [2] takes 8 bytes, but data_offsets hold 4");
  expect_entry_refused("F64", "[2]", "[0,8]", "F64 [2] takes 16 bytes, but data_offsets hold 8");
  expect_entry_refused("F32", "[]", "[0,8]", "takes 4 bytes");
}

TEST_F(SafetensorsRefusals, OfShapesThatAreNotPossible) {
  struct Row {
    const char *type, *shape, *message;
  };
  for (const Row& row : {Row{"F32", "[-2]", "'x': [shape] size -2 is not"},
                         {"F32", "[1,1,1,1,1,1,1,1,2]", "rank 9 is over 8"},
                         {"F32", "[2147483649]", "size 2147483649 is not in 0 to 2^31"},
                         {"F32", "[0,4294967296]", "size 4294967296 is not"},
                         {"F64", "[2147483648,1073741824]", "does not fit 63 bits"},     // 2^61 x 8 bytes
                         {"BOOL", "[2147483648,2147483648,4]", "does not fit 63 bits"},  // 2^64
                         {"F32", "[2147483648,2147483648,2147483648,0]", "does not fit 63 bits"},
                         {"F32", "[0,2147483648,2147483648,2147483648]", "does not fit 63 bits"}}) {
    expect_entry_refused(row.type, row.shape, "[0,0]", row.message);
  }
}

TEST_F(SafetensorsRefusals, OfDataThatIsNotTiled) {
  const auto two = [](std::string_view a, std::string_view b) {
    return "{" + entry("a", "I32", "[1]", a) + "," + entry("b", "I32", "[1]", b) + "}";
  };
  ASSERT_NO_THROW(open(file_bytes(two("[0,4]", "[4,8]"), 8)));
  expect_header_refused(two("[0,4]", "[0,4]"), "tensor 'b' overlaps the one before it", 4);
  expect_header_refused(two("[0,4]", "[2,6]"), "tensor 'b' overlaps the one before it", 6);
  expect_header_refused(two("[4,8]", "[0,4]"), "bytes", 9);
  expect_header_refused(two("[0,4]", "[5,9]"), "tensor 'b' leaves a hole before it", 9);
  expect_header_refused(two("[1,5]", "[5,9]"), "tensor 'a' leaves a hole before it", 9);
  expect_header_refused(two("[0,4]", "[4,8]"), "belong to no tensor", 9);
  expect_header_refused("{}", "bytes 10 to 11 belong to no tensor", 1);
  expect_header_refused("{" + entry("a", "I32", "[2]", "[0,8]") + "," + entry("e", "I32", "[0]", "[4,4]") + "}",
                        "tensor 'e' overlaps", 8);
  expect_header_refused("{" + entry("e", "I32", "[0]", "[8,8]") + "}", "tensor 'e' leaves a hole");
}

TEST_F(SafetensorsRefusals, OfTooManyEntriesBeforeTheyAreKept) {
  std::string header = "{";
  for (int index = 0; header.size() < (15 << 20); ++index) {
    if (index > 0) header += ",";
    header += entry(std::to_string(index), "F32", "[0]", "[0,0]");
  }
  expect_header_refused(header + "}", "more than 100000 tensors", 0);
  header = "{\"__metadata__\":{";
  for (int index = 0; index < 1000000; ++index) header += formatted("{}\"{}\":\"\"", index > 0 ? "," : "", index);
  expect_header_refused(header + "}}", "more than 100001 values", 0);
}

TEST_F(SafetensorsRefusals, LongNamesAreCutInMessages) {
  const std::string name(16000000, 'x');
  const std::string path = folder_.file("a.safetensors", file_bytes("{" + entry(name, "F33", "[0]", "[0,0]") + "}", 0));
  const std::string message = error_of([&] { SafetensorsFile::open(path); });
  EXPECT_TRUE(holds(message, "... (16000000 bytes)")) << message.substr(0, 500);
  EXPECT_LT(message.size(), 1000U);
}

TEST_F(SafetensorsRefusals, MemoryIsTakenOnlyForTensorsThatAreThere) {
  const auto before = memory_counters().live_bytes;
  reset_peak_memory();
  expect_entry_refused("F32", "[2147483648,1048576]", "[0,8]", "takes 9007199254740992 bytes");
  EXPECT_EQ(memory_counters().peak_bytes, before);
}

TEST_F(SafetensorsRefusals, OfWritingWhatCouldNotBeRead) {
  const std::string path = folder_.file("a.safetensors");
  const Tensor x = Tensor::zeros({1});
  EXPECT_ERROR(write_safetensors(path, {{"x", x}, {"x", x}}), "the name 'x' stands there twice");
  EXPECT_ERROR(write_safetensors(path, {{"__metadata__", x}}), "'__metadata__': [json] expected a string");
  EXPECT_ERROR(write_safetensors(path, {{"\xff", x}}), "is not UTF-8");
  EXPECT_ERROR(write_safetensors(path, {{"x", x}}, {{"a", "\xff"}}), "is not UTF-8");
  EXPECT_ERROR(write_safetensors(path, {{"x", Tensor()}}), "tensor 'x' is undefined");
  EXPECT_ERROR(write_safetensors(path, {{std::string(17 << 20, 'x'), x}}), "at most 16777216 can be read again");
  EXPECT_EQ(folder_.file_count(), 0U);
}

}  // namespace tally::io_safetensors_refusals_test

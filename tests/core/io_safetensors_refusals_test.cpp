// Hostile and damaged safetensors files.
#include <sys/stat.h>

#include <limits>
#include <random>

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
  expect_refused("1234567", "has 7 bytes, fewer than the 8");
  expect_refused(little_endian<std::uint64_t>(0), "byte 0: header length 0 does not fit");
  expect_refused(with_length(0), "header length 0 does not fit");
  expect_refused(with_length(1), "header length 1 does not fit");
  expect_refused(with_length(good.size() - 7), "does not fit a file of");
  expect_refused(with_length(good.size()), "does not fit a file of");
  expect_refused(with_length((16 << 20)), "does not fit a file of");
  expect_refused(with_length((16 << 20) + 1), "header length 16777217 is over 16777216");
  expect_refused(with_length(largest), "header length 18446744073709551615 is over");
  expect_refused(with_length(largest - 7), "header length 18446744073709551608 is over");
  expect_refused(with_length(std::uint64_t{1} << 63), "is over");
}

TEST_F(SafetensorsRefusals, OfWhatIsNotAFile) {
  EXPECT_ERROR(SafetensorsFile::open(folder_.path()), "is a folder");
  ASSERT_EQ(::mkfifo(folder_.file("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(SafetensorsFile::open(folder_.file("pipe")), "is a pipe");
  EXPECT_ERROR(SafetensorsFile::open(folder_.file("absent")), "cannot be opened");
}

TEST_F(SafetensorsRefusals, OfHeadersThatAreNotStrictJson) {
  expect_header_refused("{\"\xff\":1}", "byte 10: not UTF-8");
  expect_header_refused("\xef\xbb\xbf{}", "byte 8: a byte order mark");
  expect_header_refused(std::string(100000, '['), "byte 8: expected an object");
  expect_header_refused("{\"a\":" + std::string(100000, '['), "byte 16: nested deeper than 4");
  expect_header_refused("{\"a\":{\"shape\":" + std::string(100000, '['), "byte 24: nested deeper than 4");
  expect_header_refused(R"({"\ud800":{}})",
                        "byte 16: syntax error while parsing object key - invalid string: surrogate");
  expect_header_refused("{}x", "byte 10: syntax error");
  expect_header_refused(std::string("{}\0", 3), "byte 10: a zero byte");
  expect_header_refused("{ ", "byte 10: syntax error");
  expect_header_refused("[]", "byte 8: expected an object");
  expect_header_refused("null", "byte 8: expected an object");
  expect_header_refused("   ", "byte 11: syntax error");
  expect_entry_refused("F32", "[1e3]", "[0,8]", "the number 1e3 is no integer");
  expect_entry_refused("F32", "[2.0]", "[0,8]", "the number 2.0 is no integer");
  expect_entry_refused("F32", "[2]", "[0,8e0]", "the number 8e0 is no integer");
  expect_entry_refused("F32", "[18446744073709551616]", "[0,8]", "does not fit 64 bits");
  expect_entry_refused("F32", "[2]", "[0,18446744073709551615]", "does not fit 64 bits");
  expect_header_refused("{" + entry("x", "F32", "[2]", "[0,8]") + "," + entry("x", "F32", "[2]", "[0,8]") + "}",
                        "the name 'x' stands there twice");
  expect_header_refused("{" + entry("x", "F32", "[2]", "[0,8]") + "," + entry("\\u0078", "F32", "[2]", "[0,8]") + "}",
                        "the name 'x' stands there twice");
  expect_header_refused(R"({"x":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                        "the name 'dtype' stands here again");
  expect_header_refused(R"({"__metadata__":{"a":"1","a":"2"}})", "the name 'a' stands here again");
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})",
                        "'__metadata__': [header] the name stands here again", 0);
}

TEST_F(SafetensorsRefusals, OfEntriesThatAreNotAsWritten) {
  expect_header_refused(R"({"x":1})", "byte 9: 'x': [json] expected an object");
  expect_header_refused(R"({"x":null})", "byte 9: 'x': [json] expected an object");
  expect_header_refused(R"({"x":{}})", "byte 9: 'x': [json] 'dtype' is missing");
  expect_header_refused(R"({"x":{"dtype":"F32","data_offsets":[0,8]}})", "'shape' is missing");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[2]}})", "'data_offsets' is missing");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":0}})", "unknown key 'extra'");
  expect_header_refused(R"({"x":{"dtype":1,"shape":[2],"data_offsets":[0,8]}})", "'dtype' must be a string");
  expect_header_refused(R"({"x":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "expected an array");
  expect_header_refused(R"({"__metadata__":[]})", "'__metadata__': [json] expected an object", 0);
  expect_header_refused(R"({"__metadata__":{"a":1}})", "'__metadata__': [json] expected a string", 0);
  expect_header_refused(R"({"__metadata__":{"a":{}}})", "'__metadata__': [json] expected a string", 0);
  expect_entry_refused("F33", "[2]", "[0,8]", "unknown type 'F33'");
  expect_entry_refused("f32", "[2]", "[0,8]", "unknown type 'f32'");
  expect_entry_refused("", "[2]", "[0,8]", "unknown type ''");
  expect_entry_refused("F32", "[\\\"2\\\"]", "[0,8]", "");
  expect_entry_refused("F32", "[null]", "[0,8]", "expected an integer");
  expect_entry_refused("F32", "[[2]]", "[0,8]", "expected an integer");
  expect_entry_refused("F32", "[2]", "[0,8,8]", "data_offsets must be two numbers");
  expect_entry_refused("F32", "[2]", "[8]", "data_offsets must be two numbers");
  expect_entry_refused("F32", "[2]", "[]", "data_offsets must be two numbers");
  expect_entry_refused("F32", "[2]", "[\"0\",8]", "expected an integer");
  expect_header_refused("{" + entry("a\\u001b[2J", "F33", "[2]", "[0,8]") + "}", "'a\\x1b[2J': ");
}

TEST_F(SafetensorsRefusals, OfOffsetsThatDoNotFit) {
  expect_entry_refused("F32", "[2]", "[8,0]",
                       "byte 9: 'x': [header] data_offsets must be two numbers, rising, within the 8 bytes");
  expect_entry_refused("F32", "[2]", "[-8,0]", "data_offsets must be");
  expect_entry_refused("F32", "[2]", "[0,-8]", "data_offsets must be");
  expect_entry_refused("F32", "[3]", "[0,12]", "data_offsets must be");
  expect_entry_refused("F32", "[2]", "[8,16]", "data_offsets must be");
  expect_entry_refused("F32", "[2]", "[9223372036854775800,9223372036854775807]", "data_offsets must be");
  expect_entry_refused("F32", "[2]", "[0,4]", "F32 [2] takes 8 bytes, but data_offsets hold 4");
  expect_entry_refused("F64", "[2]", "[0,8]", "F64 [2] takes 16 bytes, but data_offsets hold 8");
  expect_entry_refused("F32", "[0]", "[0,8]", "takes 0 bytes, but data_offsets hold 8");
  expect_entry_refused("F32", "[]", "[0,8]", "takes 4 bytes");
}

TEST_F(SafetensorsRefusals, OfShapesThatAreNotPossible) {
  expect_entry_refused("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]", "rank 9 is over 8");
  expect_entry_refused("F32", "[-2]", "[0,8]", "'x': [shape] size -2 is not");
  expect_entry_refused("F32", "[-1,-2]", "[0,8]", "size -1 is not");
  expect_entry_refused("F32", "[2147483649]", "[0,8]", "size 2147483649 is not in 0 to 2^31");
  expect_entry_refused("F32", "[4611686018427387906]", "[0,8]", "is not in 0 to 2^31");  // times 4 is 8 in 64 bits
  expect_entry_refused("BOOL", "[2147483648,2147483648,4]", "[0,0]", "does not fit 63 bits");  // 2^64
  expect_entry_refused("F64", "[2147483648,1073741824]", "[0,0]", "does not fit 63 bits");     // 2^61 x 8 bytes
  expect_entry_refused("F32", "[0,4294967296]", "[0,0]", "size 4294967296 is not");
  expect_entry_refused("F32", "[2147483648,2147483648,2147483648,0]", "[0,0]", "does not fit 63 bits");
  expect_entry_refused("F32", "[0,2147483648,2147483648,2147483648]", "[0,0]", "does not fit 63 bits");
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

// A changed file loads, or an Error gives the reason.
TEST_F(SafetensorsRefusals, MutationsLoadOrThrowErrors) {
  const std::string path = folder_.file("b.safetensors");
  write_safetensors(
      path, {{"a", Tensor::zeros({2, 3})}, {"b", Tensor::zeros({4}, DType::boolean)}, {"c", Tensor::zeros({0, 7})}},
      {{"step", "1"}});
  const std::string good = bytes_of_file(path);
  const std::string_view snippets[] = {
      "{", "}", "[", "]", "\"", "\\", ",", ":", "0", "9", "-", "e", "18446744073709551615", "\\ud800"};
  std::mt19937 random(3);
  int loaded = 0;
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (std::size_t change = 1 + random() % 2; change > 0 && !bytes.empty(); --change) {
      const std::size_t offset = random() % bytes.size();
      switch (random() % 5) {
        case 0: bytes[offset] = static_cast<char>(random()); break;
        case 1: bytes.erase(offset, 1 + random() % 8); break;
        case 2: bytes.insert(offset, 1, static_cast<char>(random())); break;
        case 3: bytes.insert(offset, snippets[random() % std::size(snippets)]); break;
        default: bytes.resize(std::max<std::size_t>(1, offset)); break;
      }
    }
    const std::string message = error_of([&] {
      const SafetensorsFile file = open(bytes);
      for (const SafetensorsEntry& e : file.entries()) {
        if (e.dtype) file.read(e.name);
      }
    });
    ++(message.empty() ? loaded : refused);
  }
  EXPECT_EQ(loaded + refused, 2000);
  EXPECT_GT(loaded, 20);
  EXPECT_GT(refused, 1000);
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

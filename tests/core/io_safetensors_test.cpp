#include "core/io/safetensors.hpp"

#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/allocator.hpp"
#include "tests/core/io_files.hpp"

namespace tally {
namespace {

// A file with this header, whatever it is, and so many bytes of data.
std::string file_bytes(std::string_view header, std::size_t data_bytes) {
  return little_endian<std::uint64_t>(header.size()) + std::string(header) + std::string(data_bytes, '\0');
}

std::string entry(std::string_view name, std::string_view type, std::string_view shape, std::string_view offsets) {
  return concat("\"", name, "\":{\"dtype\":\"", type, "\",\"shape\":", shape, ",\"data_offsets\":", offsets, "}");
}

class Safetensors : public testing::Test {
 protected:
  SafetensorsFile open(std::string_view bytes) { return SafetensorsFile::open(folder_.file("a.safetensors", bytes)); }
  void expect_refused(std::string_view bytes, std::string_view message) {
    const std::string path = folder_.file("a.safetensors", bytes);
    EXPECT_ERROR(SafetensorsFile::open(path), message);
    EXPECT_ERROR(SafetensorsFile::open(path), "a.safetensors");
  }
  void expect_header_refused(std::string_view header, std::string_view message, std::size_t data_bytes = 8) {
    expect_refused(file_bytes(header, data_bytes), message);
  }
  // An entry of its own that would be right but for what is being tested.
  void expect_entry_refused(std::string_view type, std::string_view shape, std::string_view offsets,
                            std::string_view message) {
    expect_header_refused("{" + entry("x", type, shape, offsets) + "}", message);
  }

  TemporaryFolder folder_;
};

template <class T>
void expect_same(const Tensor& tensor, const std::vector<T>& values, const Shape& shape) {
  EXPECT_EQ(tensor.dtype(), dtype_of<T>);
  EXPECT_EQ(tensor.shape(), shape);
  EXPECT_EQ(tensor.to_vector<T>(), values);
}

TEST_F(Safetensors, RoundTripOfEveryType) {
  const std::vector<float> f32 = {
      0.0F, -0.0F, 1.5F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min(), -3e38F};
  const std::vector<double> f64 = {1e308, -5e-324};
  const std::vector<std::int32_t> i32 = {std::numeric_limits<std::int32_t>::min(), 7};
  const std::vector<std::int64_t> i64 = {std::numeric_limits<std::int64_t>::max(), -1, 0};
  const std::vector<bool> boolean = {true, false, true};
  Tensor flags = Tensor::empty({3}, DType::boolean);
  std::copy(boolean.begin(), boolean.end(), flags.span<bool>().begin());
  const std::string path = folder_.file("a.safetensors");
  write_safetensors(path,
                    {{"f32", Tensor::from(f32, {2, 3})},
                     {"bool", flags},  // three bytes: what follows is not aligned
                     {"f64", Tensor::from(f64, {2, 1, 1})},
                     {"i32", Tensor::from(i32, {1, 2})},
                     {"i64", Tensor::from(i64, {3})},
                     {"scalar", Tensor::from(std::vector<float>{2.5F}, {})},
                     {"empty", Tensor::empty({0, 5})},
                     {"empty too", Tensor::empty({3, 0}, DType::i64)}},
                    {{"step", "500"}, {"", "empty key"}, {"text", "\"\\\n\u00e9"}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  expect_same(file.read("f32"), f32, {2, 3});
  EXPECT_TRUE(std::signbit(file.read("f32").span<float>()[1]));
  expect_same(file.read("bool"), boolean, {3});
  expect_same(file.read("f64"), f64, {2, 1, 1});
  expect_same(file.read("i32"), i32, {1, 2});
  expect_same(file.read("i64"), i64, {3});
  expect_same(file.read("scalar"), std::vector<float>{2.5F}, {});
  expect_same(file.read("empty"), std::vector<float>{}, {0, 5});
  expect_same(file.read("empty too"), std::vector<std::int64_t>{}, {3, 0});
  EXPECT_EQ(file.metadata(), (Metadata{{"step", "500"}, {"", "empty key"}, {"text", "\"\\\n\u00e9"}}));
  std::vector<std::string> names;
  for (const SafetensorsEntry& e : file.entries()) names.push_back(e.name);
  EXPECT_EQ(names, (std::vector<std::string>{"f32", "bool", "f64", "i32", "i64", "scalar", "empty", "empty too"}));
  EXPECT_EQ(file.find("f64")->type, "F64");
  EXPECT_EQ(file.find("f64")->end - file.find("f64")->begin, 16U);
}

TEST_F(Safetensors, BytesAreThoseOfTheFormat) {
  const std::string path = folder_.file("a.safetensors");
  const NamedTensors tensors = {{"x", Tensor::from(std::vector<std::int32_t>{1, -1}, {2})}};
  write_safetensors(path, tensors, {{"b", "2"}, {"a", "1"}});
  std::string header = R"({"__metadata__":{"a":"1","b":"2"},"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string expected =
      little_endian<std::uint64_t>(header.size()) + header + little_endian(1) + little_endian(-1);
  EXPECT_EQ(bytes_of_file(path), expected);
  write_safetensors(path, tensors, {{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(bytes_of_file(path), expected);
}

TEST_F(Safetensors, DataBeginAtAMultipleOfEight) {
  const std::string path = folder_.file("a.safetensors");
  for (std::size_t length = 1; length <= 16; ++length) {
    write_safetensors(path, {{std::string(length, 'n'), Tensor::from(std::vector<float>{1.0F}, {1})}});
    EXPECT_EQ(SafetensorsFile::open(path).entries().front().begin % 8, 0U);
  }
}

TEST_F(Safetensors, StridedTensorsAreWrittenRowMajor) {
  const std::string path = folder_.file("a.safetensors");
  const Tensor tensor = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  write_safetensors(path, {{"turned", tensor.transpose_view(0, 1)}, {"column", tensor.select_view(1, 1)}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  expect_same(file.read("turned"), std::vector<float>{1, 4, 2, 5, 3, 6}, {3, 2});
  expect_same(file.read("column"), std::vector<float>{2, 5}, {2});
}

TEST_F(Safetensors, NamesMayBeAnything) {
  const std::vector<std::string> names = {"",
                                          std::string(100000, 'x'),
                                          "a\nb\x1b[0m",
                                          std::string("a\0b", 3),
                                          "\u00e9\U0001f600",
                                          "\"quotes\\\"",
                                          "model.blocks.0.attention.query.weight"};
  NamedTensors tensors;
  for (std::size_t index = 0; index < names.size(); ++index) {
    tensors.emplace_back(names[index], Tensor::from(std::vector<float>{static_cast<float>(index)}, {1}));
  }
  const std::string path = folder_.file("a.safetensors");
  write_safetensors(path, tensors);
  const SafetensorsFile file = SafetensorsFile::open(path);
  for (std::size_t index = 0; index < names.size(); ++index) {
    expect_same(file.read(names[index]), std::vector<float>{static_cast<float>(index)}, {1});
  }
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_ERROR(file.read("absent\n"), "a.safetensors: has no tensor 'absent\\n'");
}

TEST_F(Safetensors, NothingAtAll) {
  write_safetensors(folder_.file("a.safetensors"), {});
  EXPECT_TRUE(SafetensorsFile::open(folder_.file("a.safetensors")).entries().empty());
  EXPECT_TRUE(open(file_bytes("{}", 0)).entries().empty());
}

TEST_F(Safetensors, UnsortedEntriesLoad) {
  const std::string header = "{" + entry("b", "I32", "[1]", "[4,8]") + "," + entry("empty", "F32", "[0]", "[4,4]") +
                             "," + entry("a", "I32", "[]", "[0,4]") + "}";
  const SafetensorsFile file =
      open(little_endian<std::uint64_t>(header.size()) + header + little_endian(1) + little_endian(2));
  expect_same(file.read("a"), std::vector<std::int32_t>{1}, {});
  expect_same(file.read("b"), std::vector<std::int32_t>{2}, {1});
  EXPECT_EQ(file.entries().front().name, "b");
}

TEST_F(Safetensors, WhiteSpaceIsToleratedOnReading) {
  const SafetensorsFile file = open(file_bytes(" \n\t{ " + entry("a", "F32", "[ 2 ]", "[0 , 8]") + " }\r\n  ", 8));
  EXPECT_EQ(file.entries().front().shape, Shape({2}));
}

TEST_F(Safetensors, OtherTypesAreListedButNotLoaded) {
  const std::pair<std::string_view, std::size_t> types[] = {{"F16", 2},     {"BF16", 2},    {"I8", 1},     {"U8", 1},
                                                            {"I16", 2},     {"U16", 2},     {"U32", 4},    {"U64", 8},
                                                            {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (const auto& [type, bytes] : types) {
    const SafetensorsFile file =
        open(file_bytes("{" + entry("x", type, "[3]", concat("[0,", 3 * bytes, "]")) + "}", 3 * bytes));
    EXPECT_EQ(file.entries().front().type, type);
    EXPECT_EQ(file.entries().front().dtype, std::nullopt);
    EXPECT_ERROR(file.read("x"), concat("tensor 'x' has type ", type, "; only F32, F64, I32, I64 and BOOL"));
  }
}

TEST_F(Safetensors, RefusesWrongHeaderLengths) {
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

TEST_F(Safetensors, RefusesWhatIsNotAFile) {
  EXPECT_ERROR(SafetensorsFile::open(folder_.path()), "is a folder");
  ASSERT_EQ(::mkfifo(folder_.file("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(SafetensorsFile::open(folder_.file("pipe")), "is a pipe");
  EXPECT_ERROR(SafetensorsFile::open(folder_.file("absent")), "cannot be opened");
}

TEST_F(Safetensors, RefusesHeadersThatAreNotStrictJson) {
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

TEST_F(Safetensors, RefusesEntriesThatAreNotAsWritten) {
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

TEST_F(Safetensors, RefusesOffsetsThatDoNotFit) {
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

TEST_F(Safetensors, RefusesShapesThatAreNotPossible) {
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

TEST_F(Safetensors, RefusesDataThatIsNotTiled) {
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

TEST_F(Safetensors, RefusesTooManyEntriesBeforeTheyAreKept) {
  std::string header = "{";
  for (int index = 0; header.size() < (15 << 20); ++index) {
    if (index > 0) header += ",";
    header += entry(std::to_string(index), "F32", "[0]", "[0,0]");
  }
  expect_header_refused(header + "}", "more than 100000 tensors", 0);
  header = "{\"__metadata__\":{";
  for (int index = 0; index < 1000000; ++index) header += concat(index > 0 ? "," : "", "\"", index, "\":\"\"");
  expect_header_refused(header + "}}", "more than 100001 values", 0);
}

TEST_F(Safetensors, MostEntriesThatAreAllowed) {
  std::string header = "{\"__metadata__\":{}";
  for (int index = 0; index < 100000; ++index)
    header += concat(",", entry(std::to_string(index), "F32", "[0]", "[0,0]"));
  const SafetensorsFile file = open(file_bytes(header + "}", 0));
  EXPECT_EQ(file.entries().size(), 100000U);
  EXPECT_EQ(file.find("77777")->name, "77777");
}

TEST_F(Safetensors, LongNamesAreCutInMessages) {
  const std::string name(16000000, 'x');
  const std::string path = folder_.file("a.safetensors", file_bytes("{" + entry(name, "F33", "[0]", "[0,0]") + "}", 0));
  const std::string message = error_of([&] { SafetensorsFile::open(path); });
  EXPECT_TRUE(holds(message, "... (16000000 bytes)")) << message.substr(0, 500);
  EXPECT_LT(message.size(), 1000U);
}

TEST_F(Safetensors, MemoryIsTakenOnlyForTensorsThatAreThere) {
  const auto before = memory_counters().live_bytes;
  reset_peak_memory();
  expect_entry_refused("F32", "[2147483648,1048576]", "[0,8]", "takes 9007199254740992 bytes");
  EXPECT_EQ(memory_counters().peak_bytes, before);
}

TEST_F(Safetensors, NoticesAFileThatShrinks) {
  const std::string path = folder_.file("a.safetensors");
  write_safetensors(path, {{"x", Tensor::zeros({1000})}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_ERROR(file.read("x"), "has become shorter since");
  EXPECT_ERROR(file.checksum(*file.find("x")), "has become shorter since");
}

TEST_F(Safetensors, BoolsAreZeroOrOne) {
  const SafetensorsFile file =
      open(file_bytes("{" + entry("x", "BOOL", "[3]", "[0,3]") + "}", 0) + std::string("\1\0\2", 3));
  EXPECT_ERROR(file.read("x"), concat("tensor 'x': byte ", file.find("x")->begin + 2, " of a bool is neither 0 nor 1"));
}

TEST_F(Safetensors, RefusesToWriteWhatCouldNotBeRead) {
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

class SafetensorsChecksums : public Safetensors {
 protected:
  // The file's bytes; its path is "b.safetensors" in the folder.
  std::string write_checked() {
    const NamedTensors tensors = {{"x", Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3})},
                                  {"y\n", Tensor::from(std::vector<std::int64_t>{7}, {})},
                                  {"empty", Tensor::empty({0})}};
    Metadata metadata = {{"step", "500"}};
    add_checksums(metadata, tensors);
    write_safetensors(folder_.file("b.safetensors"), tensors, metadata);
    return bytes_of_file(folder_.file("b.safetensors"));
  }
  std::vector<std::string> bad_in(std::string_view bytes) { return verify_checksums(open(bytes)); }
};

using Names = std::vector<std::string>;

TEST_F(SafetensorsChecksums, Hold) {
  const std::string bytes = write_checked();
  EXPECT_EQ(bad_in(bytes), Names{});
  const std::string data = little_endian<std::int64_t>(7);
  const SafetensorsFile file = SafetensorsFile::open(folder_.file("b.safetensors"));
  EXPECT_EQ(file.metadata().at("checksum.empty"), "00000000");
  EXPECT_EQ(file.metadata().count("checksum.y\n"), 1U);
}

// A file is read a MiB at a time.
TEST_F(SafetensorsChecksums, HoldForATensorOfSeveralParts) {
  const NamedTensors tensors{{"long", Tensor::full({300'000}, 0.1)}};
  Metadata metadata;
  add_checksums(metadata, tensors);
  write_safetensors(folder_.file("c.safetensors"), tensors, metadata);
  EXPECT_EQ(verify_checksums(SafetensorsFile::open(folder_.file("c.safetensors"))), Names{});
}

TEST_F(SafetensorsChecksums, NameWhatIsWrong) {
  const std::string bytes = write_checked();
  const SafetensorsFile file = SafetensorsFile::open(folder_.file("b.safetensors"));
  std::string wrong = bytes;
  wrong[file.find("x")->begin + 5] ^= 4;
  EXPECT_EQ(bad_in(wrong), Names{"x"});
  wrong[file.find("y\n")->begin] ^= 1;
  EXPECT_EQ(bad_in(wrong), (Names{"x", "y\n"}));
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string text = bytes;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(bad_in(replaced("\"500\"", "\"501\"")), Names{"__metadata__"});
  EXPECT_EQ(bad_in(replaced("[2,3]", "[3,2]")), Names{"__metadata__"});  // the bytes are the same
  EXPECT_EQ(bad_in(replaced("F32", "I32")), Names{"__metadata__"});
  EXPECT_EQ(bad_in(replaced("checksum.x", "checksum.z")), (Names{"x", "__metadata__"}));
}

TEST_F(SafetensorsChecksums, MustBeThere) {
  EXPECT_EQ(bad_in(file_bytes("{" + entry("x", "F32", "[2]", "[0,8]") + "}", 8)), (Names{"x", "__metadata__"}));
}

// Any one bit of a checked file: refused, named as wrong, or without meaning (a blank of the padding cannot change into
// another blank by one bit that matters).
TEST_F(SafetensorsChecksums, SeeEverySingleBit) {
  const std::string bytes = write_checked();
  const SafetensorsFile right = SafetensorsFile::open(folder_.file("b.safetensors"));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string wrong = bytes;
    wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << (bit % 8)));
    bool noticed = false;
    const std::string message = error_of([&] { noticed = !bad_in(wrong).empty(); });
    if (noticed || !message.empty()) continue;
    const SafetensorsFile file = SafetensorsFile::open(folder_.file("a.safetensors"));
    EXPECT_EQ(file.metadata(), right.metadata()) << bit;
    EXPECT_EQ(file.entries().size(), right.entries().size()) << bit;
  }
}

// Whatever is done to a file, it loads or an Error says why.
TEST_F(Safetensors, MutationsLoadOrThrowErrors) {
  const std::string path = folder_.file("b.safetensors");
  write_safetensors(
      path, {{"a", Tensor::zeros({2, 3})}, {"b", Tensor::zeros({4}, DType::boolean)}, {"c", Tensor::zeros({0, 7})}},
      {{"step", "1"}});
  const std::string good = bytes_of_file(path);
  const std::string_view pieces[] = {
      "{", "}", "[", "]", "\"", "\\", ",", ":", "0", "9", "-", "e", "18446744073709551615", "\\ud800"};
  std::mt19937 random(3);
  int loaded = 0;
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (std::size_t change = 1 + random() % 2; change > 0 && !bytes.empty(); --change) {
      const std::size_t place = random() % bytes.size();
      switch (random() % 5) {
        case 0: bytes[place] = static_cast<char>(random()); break;
        case 1: bytes.erase(place, 1 + random() % 8); break;
        case 2: bytes.insert(place, 1, static_cast<char>(random())); break;
        case 3: bytes.insert(place, pieces[random() % std::size(pieces)]); break;
        default: bytes.resize(std::max<std::size_t>(1, place)); break;
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

// Files made by other programs.
TEST(SafetensorsReference, Opens) {
  int count = 0;
  for (const auto& item : std::filesystem::directory_iterator(TALLY_SOURCE_DIR "/tests/reference")) {
    if (item.path().extension() != ".safetensors") continue;
    const SafetensorsFile file = SafetensorsFile::open(item.path());
    for (const SafetensorsEntry& e : file.entries()) EXPECT_EQ(file.read(e.name).shape(), e.shape);
    ++count;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace tally

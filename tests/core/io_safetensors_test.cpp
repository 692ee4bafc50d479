// The contents of safetensors files, and their checksums.
#include <cmath>
#include <limits>

#include "tests/core/io_safetensors.hpp"

namespace tally::io_safetensors_test {

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
                     {"bool", flags},  // three bytes: the next tensor is not aligned
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
  write_safetensors(path, {{"turned", tensor.detached_transpose(0, 1)}, {"column", tensor.detached_select(1, 1)}});
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
  const std::pair<std::string_view, std::size_t> types[] = {{"F16", 2},     {"I8", 1},     {"U8", 1},  {"I16", 2},
                                                            {"U16", 2},     {"U32", 4},    {"U64", 8}, {"F8_E4M3", 1},
                                                            {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (const auto& [type, bytes] : types) {
    const SafetensorsFile file =
        open(file_bytes("{" + entry("x", type, "[3]", formatted("[0,{}]", 3 * bytes)) + "}", 3 * bytes));
    EXPECT_EQ(file.entries().front().type, type);
    EXPECT_EQ(file.entries().front().dtype, std::nullopt);
    EXPECT_ERROR(file.read("x"), formatted("tensor 'x' has type {}; only F32, F64, BF16, I32, I64 and BOOL", type));
  }
}

TEST_F(Safetensors, MostEntriesThatAreAllowed) {
  std::string header = "{\"__metadata__\":{}";
  for (int index = 0; index < 100000; ++index)
    header += formatted(",{}", entry(std::to_string(index), "F32", "[0]", "[0,0]"));
  const SafetensorsFile file = open(file_bytes(header + "}", 0));
  EXPECT_EQ(file.entries().size(), 100000U);
  EXPECT_EQ(file.find("77777")->name, "77777");
}

TEST_F(Safetensors, BoolsAreZeroOrOne) {
  const SafetensorsFile file =
      open(file_bytes("{" + entry("x", "BOOL", "[3]", "[0,3]") + "}", 0) + std::string("\1\0\2", 3));
  EXPECT_ERROR(file.read("x"),
               formatted("tensor 'x': byte {} of a bool is neither 0 nor 1", file.find("x")->begin + 2));
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

}  // namespace tally::io_safetensors_test

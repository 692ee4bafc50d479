#include "core/io/npy.hpp"

#include "core/io/reader.hpp"
#include "tests/core/io_files.hpp"

namespace tally::io_npy_test {

// A file of version `major` with this header, valid or not, and its data.
std::string file_bytes(int major, std::string_view header, std::string_view data) {
  const std::string length = major == 1 ? little_endian(static_cast<std::uint16_t>(header.size()))
                                        : little_endian(static_cast<std::uint32_t>(header.size()));
  return formatted("\x93NUMPY{}{}{}{}{}", static_cast<char>(major), '\0', length, header, data);
}

std::string dictionary(std::string_view type, std::string_view order, std::string_view shape) {
  return formatted("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}   \n", type, order, shape);
}

template <class T>
std::string data_of(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) bytes += little_endian(value);
  return bytes;
}

class Npy : public ::testing::Test {
 protected:
  Tensor read(std::string_view bytes) { return read_npy(folder_.file("a.npy", bytes)); }
  void expect_refused(std::string_view bytes, std::string_view message) {
    const std::string path = folder_.file("a.npy", bytes);
    EXPECT_ERROR(read_npy(path), message);
    EXPECT_ERROR(read_npy(path), "a.npy");
  }
  void expect_header_refused(std::string_view header, std::string_view message) {
    expect_refused(file_bytes(1, header, std::string(24, '\0')), message);
  }

  TemporaryFolder folder_;
};

template <class T>
void expect_same(const Tensor& tensor, const std::vector<T>& values, const Shape& shape) {
  EXPECT_EQ(tensor.dtype(), dtype_of<T>);
  EXPECT_EQ(tensor.shape(), shape);
  EXPECT_EQ(tensor.to_vector<T>(), values);
  EXPECT_TRUE(tensor.dense());
}

const std::vector<float> six = {1, 2, 3, 4, 5, 6};

TEST_F(Npy, ReadsTheThreeVersions) {
  for (const int major : {1, 2, 3}) {
    expect_same(read(file_bytes(major, dictionary("<f4", "False", "(2, 3)"), data_of(six))), six, {2, 3});
  }
}

TEST_F(Npy, ReadsEveryType) {
  expect_same(read(file_bytes(1, dictionary("<f8", "False", "(2,)"), data_of<double>({1e300, -0.5}))),
              std::vector<double>{1e300, -0.5}, {2});
  expect_same(read(file_bytes(1, dictionary("<i4", "False", "(1, 2)"), data_of<std::int32_t>({-7, 7}))),
              std::vector<std::int32_t>{-7, 7}, {1, 2});
  expect_same(read(file_bytes(1, dictionary("<i8", "False", "()"), data_of<std::int64_t>({-(std::int64_t{1} << 60)}))),
              std::vector<std::int64_t>{-(std::int64_t{1} << 60)}, {});
  expect_same(read(file_bytes(1, dictionary("|b1", "False", "(3,)"), std::string("\1\0\1", 3))),
              std::vector<bool>{true, false, true}, {3});
  expect_same(read(file_bytes(1, dictionary("<f4", "False", "(0, 4)"), "")), std::vector<float>{}, {0, 4});
}

TEST_F(Npy, FortranOrderIsTurned) {
  expect_same(read(file_bytes(1, dictionary("<f4", "True", "(2, 3)"), data_of(six))),
              std::vector<float>{1, 3, 5, 2, 4, 6}, {2, 3});
  std::vector<std::int32_t> values(24);
  for (int index = 0; index < 24; ++index) values[static_cast<std::size_t>(index)] = index;
  const std::vector<std::int32_t> turned =
      read(file_bytes(2, dictionary("<i4", "True", "(2, 3, 4)"), data_of(values))).to_vector<std::int32_t>();
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(turned[static_cast<std::size_t>((i * 3 + j) * 4 + k)], i + 2 * j + 6 * k);
    }
  }
  expect_same(read(file_bytes(1, dictionary("<f4", "True", "(0, 4)"), "")), std::vector<float>{}, {0, 4});
  expect_same(read(file_bytes(1, dictionary("<f4", "True", "()"), data_of<float>({3}))), std::vector<float>{3}, {});
}

TEST_F(Npy, KeysInAnyOrderAndEitherQuotes) {
  const std::string header = "{\"shape\":(2,3,),\"fortran_order\":False,\n\"descr\":\"<f4\"}";
  expect_same(read(file_bytes(1, header, data_of(six))), six, {2, 3});
}

TEST_F(Npy, BytesAreThoseOfNumPy) {
  const std::string path = folder_.file("a.npy");
  write_npy(path, Tensor::from(six, {2, 3}));
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.resize(117, ' ');
  EXPECT_EQ(bytes_of_file(path), file_bytes(1, header + "\n", data_of(six)));
}

TEST_F(Npy, RoundTrips) {
  const std::string path = folder_.file("a.npy");
  const Shape shapes[] = {{}, {1}, {6}, {0}, {2, 3}, {3, 0, 2}, {1, 2, 1, 3, 1, 1, 1, 1}};
  for (const Shape& shape : shapes) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean}) {
      const Tensor tensor = Tensor::full(shape, 1.0, dtype);
      write_npy(path, tensor);
      const Tensor back = read_npy(path);
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.shape(), shape);
      EXPECT_EQ(back.to(DType::f64).to_vector<double>(), tensor.to(DType::f64).to_vector<double>());
      EXPECT_EQ(read_npy_header(path).data_begin % 64, 0U);
    }
  }
  write_npy(path, Tensor::from(six, {2, 3}).detached_transpose(0, 1));
  expect_same(read_npy(path), std::vector<float>{1, 4, 2, 5, 3, 6}, {3, 2});
  EXPECT_EQ(folder_.file_count(), 1U);
}

TEST_F(Npy, HeaderAlone) {
  const NpyHeader header =
      read_npy_header(folder_.file("a.npy", file_bytes(1, dictionary("<i8", "True", "(1, 3)"), std::string(24, '\0'))));
  EXPECT_EQ(header.dtype, DType::i64);
  EXPECT_TRUE(header.fortran_order);
  EXPECT_EQ(header.shape, Shape({1, 3}));
}

TEST_F(Npy, RefusesWhatIsNotNpy) {
  EXPECT_ERROR(read_npy(folder_.path()), "is a folder");
  ASSERT_EQ(::mkfifo(folder_.file("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(read_npy(folder_.file("pipe")), "is a pipe");
  expect_refused("", "byte 0: not a .npy file");
  expect_refused("\x93NUMPY\1", "byte 7: the file ends within its header");
  const std::string good = file_bytes(1, dictionary("<f4", "False", "(2, 3)"), data_of(six));
  for (const char major : {'\0', '\4', '\xff'}) {
    std::string bytes = good;
    bytes[6] = major;
    expect_refused(bytes, formatted("byte 6: unknown version {}.0", int{static_cast<unsigned char>(major)}));
  }
  std::string minor = good;
  minor[7] = 1;
  expect_refused(minor, "unknown version 1.1");
}

TEST_F(Npy, RefusesWrongHeaderLengths) {
  const std::string header = dictionary("<f4", "False", "(2, 3)");
  const auto with_length = [&](std::uint32_t length) {
    return formatted("\x93NUMPY\2{}{}{}{}", '\0', little_endian(length), header, data_of(six));
  };
  ASSERT_NO_THROW(read(with_length(static_cast<std::uint32_t>(header.size()))));
  expect_refused(with_length(0xfffffff0U), "byte 8: header length 4294967280 is over 65536");
  expect_refused(with_length(65537), "header length 65537 is over");
  expect_refused(with_length(1000), "past the end of the file");
  expect_refused(with_length(0), "byte 12: syntax error");
  expect_refused(with_length(10), "byte 22: syntax error");
}

TEST_F(Npy, RefusesWrongHeaders) {
  const std::string good = dictionary("<f4", "False", "(2, 3)");
  ASSERT_NO_THROW(read(file_bytes(1, good, data_of(six))));
  std::string zero = good;
  zero[good.size() - 2] = '\0';
  expect_header_refused(zero, formatted("byte {}: a zero byte in the header", 10 + good.size() - 2));
  expect_header_refused(dictionary("|O", "False", "(2, 3)"),
                        "byte 11: 'descr': [header] arrays of Python objects are not read");
  expect_header_refused(dictionary(">f4", "False", "(2, 3)"), "elements of type '>f4' are not read; only <f4, <f8");
  for (const auto* type : {"<f2", "=f4", "", "<M8[ns]"}) {
    expect_header_refused(dictionary(type, "False", "(2, 3)"), formatted("elements of type '{}' are not read", type));
  }
  expect_header_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }", "arrays of structures");
  expect_header_refused("{}", "descr is missing");
  expect_header_refused("{'descr': '<f4', 'shape': (6,), }", "fortran_order is missing");
  expect_header_refused("{'descr': '<f4', 'fortran_order': False, }", "shape is missing");
  expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}",
                        "'x': [header] unknown or repeated key");
  expect_header_refused("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}",
                        "'descr': [header] unknown or repeated key");
  expect_header_refused("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}",
                        "'fortran_order': [json] expected a boolean");
  expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': [6]}", "byte 60: a list is not read here");
  expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': 6}", "'shape': [json] expected an array");
  expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)", "expected '}'");
}

TEST_F(Npy, RefusesShapesThatAreNotPossible) {
  const auto refused = [&](std::string_view shape, std::string_view message) {
    expect_header_refused(dictionary("<f4", "False", shape), message);
  };
  refused("(-6,)", "'shape': [shape] size -6 is not in 0 to 2^31");
  refused("(6L,)", "byte 62: syntax error");
  refused("(6.0,)", "the number 6.0 is no integer");
  refused("(99999999999999999999,)", "byte 61: the integer 99999999999999999999 does not fit 64 bits");
  refused("(4294967296,)", "is not in 0 to 2^31");
  refused("(2147483648, 2147483648, 4)", "does not fit 63 bits");
  refused("(0, 2147483648, 2147483648, 2147483648)", "does not fit 63 bits");
  refused("(1, 1, 1, 1, 1, 1, 1, 1, 6)", "rank 9 is over 8");
}

TEST_F(Npy, RefusesDataTooShortOrLong) {
  const std::string header = dictionary("<f4", "False", "(2, 3)");
  expect_refused(file_bytes(1, header, data_of(six).substr(1)), "f32 [2, 3] takes 24 bytes, but 23 are there");
  expect_refused(file_bytes(1, header, ""), "takes 24 bytes, but 0 are there");
  expect_refused(file_bytes(1, header, data_of(six) + "x"), "takes 24 bytes, but 25 are there");
  expect_refused(file_bytes(1, dictionary("<f4", "False", "(2147483648, 1048576)"), ""),
                 "takes 9007199254740992 bytes");
  expect_refused(file_bytes(1, dictionary("|b1", "False", "(3,)"), std::string("\1\0\2", 3)), "is neither 0 nor 1");
}

}  // namespace tally::io_npy_test

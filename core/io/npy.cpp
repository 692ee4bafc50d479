#include "core/io/npy.hpp"

#include <charconv>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/io/atomic_file.hpp"
#include "core/io/element_bytes.hpp"
#include "core/io/reader.hpp"
#include "core/io/utf8.hpp"

namespace tally {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t max_header_bytes = 1 << 16;  // NumPy itself reads no more than 10,000
constexpr std::uint64_t alignment = 64;

constexpr std::pair<std::string_view, DType> descriptions[] = {
    {"<f4", DType::f32}, {"<f8", DType::f64}, {"<i4", DType::i32}, {"<i8", DType::i64}, {"|b1", DType::boolean},
};

// The dictionary: the three keys in any order, each once.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view file, std::uint64_t first_offset)
      : text_(text), file_(file), first_offset_(first_offset) {}

  NpyHeader parse() {
    std::optional<DType> dtype;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> sizes;
    expect('{');
    while (!take('}')) {
      const std::size_t begin = position_;
      const std::string_view key = parse_string();
      expect(':');
      if (key == "descr" && !dtype) {
        dtype = parse_type();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = parse_bool();
      } else if (key == "shape" && !sizes) {
        sizes = parse_sizes();
      } else {
        fail_at(begin, "unknown or repeated key '", escape_for_print(key), "'");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (position_ < text_.size()) fail_at(position_, "expected nothing behind the dictionary");
    if (!dtype || !fortran_order || !sizes) {
      fail_at(0, !dtype ? "descr" : !fortran_order ? "fortran_order" : "shape", " is missing");
    }
    NpyHeader header;
    header.dtype = *dtype;
    header.fortran_order = *fortran_order;
    const std::string problem = shape_problem(*sizes, size_of(*dtype));
    if (!problem.empty()) fail_at(0, problem);
    header.shape = shape_of(*sizes);
    header.data_begin = first_offset_ + text_.size();
    return header;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail_at(std::size_t position, const Parts&... parts) const {
    fail("npy", file_, ": byte ", first_offset_ + position, ": ", parts...);
  }

  void skip_space() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
  }

  bool take(char wanted) {
    skip_space();
    if (position_ == text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail_at(position_, "expected '", wanted, "'");
  }

  std::string_view parse_string() {
    const char quote = take('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = text_.find(quote, position_);
    if (end == std::string_view::npos) fail_at(position_, "a string without an end");
    const std::string_view result = text_.substr(position_, end - position_);
    position_ = end + 1;
    return result;
  }

  DType parse_type() {
    skip_space();
    const std::size_t begin = position_;
    if (text_.substr(position_, 1) == "[") fail_at(begin, "arrays of structures are not read");
    const std::string_view written = parse_string();
    for (const auto& [description, dtype] : descriptions) {
      if (written == description) return dtype;
    }
    if (written == "|O") fail_at(begin, "arrays of Python objects are not read");
    fail_at(begin, "elements of type '", escape_for_print(written), "' are not read; only <f4, <f8, <i4, <i8 and |b1");
  }

  bool parse_bool() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(position_, word.size()) != word) continue;
      position_ += word.size();
      return value;
    }
    fail_at(position_, "expected True or False");
  }

  // "()", "(3,)", "(2, 3)", "(2, 3,)"
  std::vector<std::int64_t> parse_sizes() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!take(')')) {
      skip_space();
      if (sizes.size() == max_rank) fail_at(position_, "rank over ", max_rank);
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), size);
      if (error != std::errc{}) fail_at(position_, "expected a size that fits 64 bits");
      position_ = static_cast<std::size_t>(end - text_.data());
      sizes.push_back(size);
      const bool comma = take(',');
      if (!comma && sizes.size() == 1) fail_at(position_, "expected ',': (3) is a number, (3,) a shape");
      if (!comma) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  std::string_view text_;
  std::string_view file_;
  std::uint64_t first_offset_;
  std::size_t position_ = 0;
};

NpyHeader read_header(const FileReader& reader) {
  const std::string begin = reader.read_string(0, std::min<std::uint64_t>(reader.size(), 12));
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(begin[index]); };
  check(begin.starts_with(magic), "npy", reader.name(), ": byte 0: not a .npy file");
  check(begin.size() == 12, "npy", reader.name(), ": byte ", begin.size(), ": the file ends within its header");
  const bool known = byte(6) >= 1 && byte(6) <= 3 && byte(7) == 0;
  check(known, "npy", reader.name(), ": byte 6: unknown version ", int{byte(6)}, ".", int{byte(7)});
  const std::uint64_t header_begin = byte(6) == 1 ? 10 : 12;
  std::uint64_t header_bytes = 0;
  for (std::uint64_t index = header_begin; index-- > 8;) header_bytes = header_bytes << 8 | byte(index);
  check(header_bytes <= max_header_bytes && header_bytes <= reader.size() - header_begin, "npy", reader.name(),
        ": byte 8: header length ", header_bytes, " is over ", max_header_bytes, " or past the end of the file");
  const std::string text = reader.read_string(header_begin, header_bytes);
  check(text.find('\0') == std::string::npos, "npy", reader.name(), ": byte ", header_begin + text.find('\0'),
        ": a zero byte in the header");
  const NpyHeader header = HeaderParser(text, reader.name(), header_begin).parse();
  const std::uint64_t data_bytes = static_cast<std::uint64_t>(header.shape.numel()) * size_of(header.dtype);
  check(reader.size() - header.data_begin == data_bytes, "npy", reader.name(), ": byte ", header.data_begin, ": ",
        header.dtype, " ", header.shape, " takes ", data_bytes, " bytes, but ", reader.size() - header.data_begin,
        " are there");
  return header;
}

}  // namespace

NpyHeader read_npy_header(const std::string& path) { return read_header(FileReader(path)); }

Tensor read_npy(const std::string& path) {
  const FileReader reader(path);
  const NpyHeader header = read_header(reader);
  const Tensor tensor = read_tensor(reader, header.data_begin, header.shape, header.dtype, "data");
  if (!header.fortran_order) return tensor;
  Strides strides;
  std::int64_t step = 1;
  for (int axis = 0; axis < header.shape.rank; ++axis) {
    strides[axis] = step;
    step *= header.shape[axis];
  }
  return tensor.as_strided(header.shape, strides, 0).to_dense();
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const Tensor dense = to_file_order("npy", path, tensor);
  std::string_view description;
  for (const auto& [text, dtype] : descriptions) {
    if (dtype == dense.dtype()) description = text;
  }
  std::string shape;
  for (int axis = 0; axis < dense.rank(); ++axis) shape += concat(axis > 0 ? " " : "", dense.shape()[axis], ",");
  if (dense.rank() > 1) shape.pop_back();
  std::string header = concat("{'descr': '", description, "', 'fortran_order': False, 'shape': (", shape, "), }");
  const std::size_t unpadded = magic.size() + 4 + header.size() + 1;  // version, length, new line
  header.append((alignment - unpadded % alignment) % alignment, ' ');
  header += '\n';
  std::string begin(magic);
  begin += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  begin += header;
  const std::span<const std::byte> chunks[] = {std::as_bytes(std::span(begin)), bytes_of(dense)};
  write_file_atomically(path, chunks);
}

}  // namespace tally

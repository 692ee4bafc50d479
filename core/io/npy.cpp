#include "core/io/npy.hpp"

#include <optional>
#include <span>
#include <vector>

#include "core/io/atomic_file.hpp"
#include "core/io/json.hpp"
#include "core/io/reader.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t max_header_bytes = 1 << 16;  // NumPy itself reads no more than 10,000
constexpr std::uint64_t alignment = 64;

constexpr std::pair<std::string_view, DType> descriptions[] = {
    {"<f4", DType::f32}, {"<f8", DType::f64}, {"<i4", DType::i32}, {"<i8", DType::i64}, {"|b1", DType::boolean},
};

// The same bytes as JSON: quotes, tuples and words as JSON has them, no comma before a bracket that closes.
std::string json_of(std::string text, const std::string& file, std::uint64_t first_offset) {
  char quote = 0;
  std::size_t last = 0;  // that is no blank
  for (std::size_t index = 0; index < text.size(); ++index) {
    char& c = text[index];
    const auto refuse_if = [&](bool wrong, std::string_view what) {
      check(!wrong, "npy", file, ": byte ", first_offset + index, ": ", what);
    };
    refuse_if(c == '\0', "a zero byte in the header");
    if (quote != 0 || c == '\'' || c == '"') {
      if (quote != 0 && c != quote) continue;
      quote = quote != 0 ? '\0' : c;
      c = '"';
    } else if (c == '(') {
      c = '[';
    } else if (c == 'T' || c == 'F') {
      c = static_cast<char>(c + 'a' - 'A');
    } else if (c == ')' || c == '}') {
      if (c == ')') c = ']';
      if (text[last] == ',') text[last] = ' ';
    } else {
      refuse_if(c == '[', "a list is not read here, nor are arrays of structures");
    }
    if (c != ' ' && c != '\n') last = index;
  }
  return text;
}

DType parse_type(const std::string& written) {
  check(written != "|O", "header", "arrays of Python objects are not read");
  for (const auto& [description, dtype] : descriptions) {
    if (written == description) return dtype;
  }
  fail("header", "elements of type '", escape_for_print(written), "' are not read; only <f4, <f8, <i4, <i8 and |b1");
}

NpyHeader parse_header(const std::string& text, const std::string& file, std::uint64_t first_offset) {
  std::optional<DType> dtype;
  std::optional<bool> fortran_order;
  std::optional<Shape> shape;
  const JsonLimits limits{.max_depth = 2, .max_values = 100, .integers_only = true};
  parse_json_members(json_of(text, file, first_offset), limits, file, first_offset, [&](const JsonMember& member) {
    if (member.name == "descr" && !dtype) {
      dtype = parse_type(member.value.string());
    } else if (member.name == "fortran_order" && !fortran_order) {
      fortran_order = member.value.boolean();
    } else if (member.name == "shape" && !shape) {
      shape = shape_from_file(member.value.integers(), sizeof(double));
    } else {
      fail("header", "unknown or repeated key");
    }
  });
  for (const auto& [name, known] : {std::pair{"descr", dtype.has_value()},
                                    {"fortran_order", fortran_order.has_value()},
                                    {"shape", shape.has_value()}}) {
    check(known, "npy", file, ": byte ", first_offset, ": ", name, " is missing");
  }
  return {*dtype, *fortran_order, *shape, first_offset + text.size()};
}

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
  const NpyHeader header = parse_header(reader.read_string(header_begin, header_bytes), reader.name(), header_begin);
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
  AtomicFile file(path);
  file.write(begin + header);
  file.write(bytes_of(dense));
  file.finish();
}

}  // namespace tally

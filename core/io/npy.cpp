#include "core/io/npy.hpp"

#include <algorithm>
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
constexpr std::uint64_t max_npy_header_bytes = 1 << 16;  // NumPy itself reads no more than 10,000
constexpr std::uint64_t alignment = 64;

constexpr std::pair<std::string_view, DType> descriptions[] = {
    {"<f4", DType::f32}, {"<f8", DType::f64}, {"<i4", DType::i32}, {"<i8", DType::i64}, {"|b1", DType::boolean},
};

// The same bytes as JSON: JSON's quotes, brackets for tuples and JSON's words, no comma before a closing bracket.
std::string json_of(std::string text, const std::string& file, std::uint64_t first_offset) {
  char quote = 0;
  std::size_t last = 0;  // of the last character that is not blank
  for (std::size_t index = 0; index < text.size(); ++index) {
    char& c = text[index];
    const auto refuse_if = [&](bool wrong, std::string_view what) {
      check(!wrong, "npy", "{}: byte {}: {}", file, first_offset + index, what);
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

// The header's content, whether or not a tensor can hold it.
struct Layout {
  std::string type;
  bool fortran_order = false;
  std::vector<std::int64_t> sizes;
  std::uint64_t data_begin = 0;
};

using Types = std::span<const std::string_view>;
using CheckSizes = void (*)(const std::vector<std::int64_t>& sizes);

void check_type(std::string_view written, Types types) {
  check(written != "|O", "header", "arrays of Python objects are not read");
  std::string known;
  for (const std::string_view type : types) {
    if (written == type) return;
    known += formatted("{}{}", type == types.front() ? "" : type == types.back() ? " and " : ", ", type);
  }
  fail("header", "elements of type '{}' are not read; only {}", escape_for_print(written), known);
}

Layout parse_header(const std::string& text, const std::string& file, std::uint64_t first_offset, Types types,
                    CheckSizes check_sizes) {
  std::optional<std::string> type;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> sizes;
  const JsonLimits limits{.max_depth = 2, .max_values = 100, .integers_only = true};
  parse_json_members(json_of(text, file, first_offset), limits, file, first_offset, [&](const JsonMember& member) {
    if (member.name == "descr" && !type) {
      check_type(member.value.string(), types);
      type = member.value.string();
    } else if (member.name == "fortran_order" && !fortran_order) {
      fortran_order = member.value.boolean();
    } else if (member.name == "shape" && !sizes) {
      sizes = member.value.integers();
      check_sizes(*sizes);
    } else {
      fail("header", "unknown or repeated key");
    }
  });
  for (const auto& [name, known] : {std::pair{"descr", type.has_value()},
                                    {"fortran_order", fortran_order.has_value()},
                                    {"shape", sizes.has_value()}}) {
    check(known, "npy", "{}: byte {}: {} is missing", file, first_offset, name);
  }
  return {*type, *fortran_order, *sizes, first_offset + text.size()};
}

Layout read_layout(const FileReader& reader, Types types, CheckSizes check_sizes) {
  const std::string begin = reader.read_string(0, std::min<std::uint64_t>(reader.size(), 12));
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(begin[index]); };
  check(begin.starts_with(magic), "npy", "{}: byte 0: not a .npy file", reader.name());
  check(begin.size() == 12, "npy", "{}: byte {}: the file ends within its header", reader.name(), begin.size());
  const bool known = byte(6) >= 1 && byte(6) <= 3 && byte(7) == 0;
  check(known, "npy", "{}: byte 6: unknown version {}.{}", reader.name(), int{byte(6)}, int{byte(7)});
  const std::uint64_t header_begin = byte(6) == 1 ? 10 : 12;
  std::uint64_t header_bytes = 0;
  for (std::uint64_t index = header_begin; index-- > 8;) header_bytes = header_bytes << 8 | byte(index);
  check(header_bytes <= max_npy_header_bytes && header_bytes <= reader.size() - header_begin, "npy",
        "{}: byte 8: header length {} is over {} or past the end of the file", reader.name(), header_bytes,
        max_npy_header_bytes);
  const std::string text = reader.read_string(header_begin, header_bytes);
  return parse_header(text, reader.name(), header_begin, types, check_sizes);
}

NpyHeader read_header(const FileReader& reader) {
  std::vector<std::string_view> types;
  for (const auto& [description, dtype] : descriptions) types.push_back(description);
  const Layout layout =
      read_layout(reader, types, [](const auto& sizes) { (void)shape_from_file(sizes, sizeof(double)); });
  const auto type = std::find(types.begin(), types.end(), layout.type) - types.begin();
  const NpyHeader header{descriptions[type].second, layout.fortran_order, shape_from_file(layout.sizes, sizeof(double)),
                         layout.data_begin};
  const std::uint64_t data_bytes = static_cast<std::uint64_t>(header.shape.numel()) * size_of(header.dtype);
  check(reader.size() - header.data_begin == data_bytes, "npy", "{}: byte {}: {} {} takes {} bytes, but {} are there",
        reader.name(), header.data_begin, header.dtype, header.shape, data_bytes, reader.size() - header.data_begin);
  return header;
}

}  // namespace

NpyHeader read_npy_header(const std::string& path) { return read_header(FileReader(path)); }

NpySequence read_npy_sequence(const FileReader& reader, std::span<const std::string_view> types) {
  const Layout layout = read_layout(reader, types, [](const auto& sizes) {
    check(sizes.size() == 1, "shape", "rank {}; an array in one dimension is wanted", sizes.size());
    check(sizes[0] >= 0, "shape", "size {} is negative", sizes[0]);
  });
  const auto size = static_cast<std::uint64_t>(layout.sizes[0]);
  const auto element_bytes = static_cast<std::uint64_t>(layout.type.back() - '0');
  const std::uint64_t bytes = reader.size() - layout.data_begin;
  check(bytes % element_bytes == 0 && bytes / element_bytes == size, "npy",
        "{}: byte {}: {} elements of {} bytes are promised, but {} bytes are there", reader.name(), layout.data_begin,
        size, element_bytes, bytes);
  return {layout.type, size, layout.data_begin};
}

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
  return tensor.detached_strided(header.shape, strides, 0).to_dense();
}

void write_npy(const std::string& path, const Tensor& tensor) {
  const Tensor dense = to_file_order("npy", path, tensor);
  check(dense.dtype() != DType::bf16, "npy", "{}: NumPy has no bf16; convert to f32 first",
        escape_for_print(path, 1000));
  std::string_view description;
  for (const auto& [text, dtype] : descriptions) {
    if (dtype == dense.dtype()) description = text;
  }
  std::string shape;
  for (int axis = 0; axis < dense.rank(); ++axis) shape += formatted("{}{},", axis > 0 ? " " : "", dense.shape()[axis]);
  if (dense.rank() > 1) shape.pop_back();
  std::string header = formatted("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", description, shape);
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

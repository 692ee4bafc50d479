#include "core/io/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/io/atomic_file.hpp"
#include "core/io/checksum.hpp"
#include "core/io/json.hpp"
#include "core/utf8.hpp"

namespace tally {
namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t max_header_bytes = std::uint64_t{16} << 20;
constexpr std::size_t max_entries = 100000;
constexpr std::string_view metadata_key = "__metadata__";
constexpr std::string_view checksum_key = "checksum";

struct FileType {
  std::string_view name;
  std::size_t bytes;
  std::optional<DType> dtype;
};

constexpr FileType file_types[] = {
    {"F32", 4, DType::f32},       {"F64", 8, DType::f64},       {"I32", 4, DType::i32},
    {"I64", 8, DType::i64},       {"BOOL", 1, DType::boolean},  {"F16", 2, std::nullopt},
    {"BF16", 2, DType::bf16},     {"I8", 1, std::nullopt},      {"U8", 1, std::nullopt},
    {"I16", 2, std::nullopt},     {"U16", 2, std::nullopt},     {"U32", 4, std::nullopt},
    {"U64", 8, std::nullopt},     {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt},
};

// IEEE 754 binary16 (1 sign, 5 exponent, 10 fraction) as binary32, which holds all its numbers.
float widened_half(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16, exponent = bits >> 10 & 31U, fraction = bits & 1023U;
  if (exponent == 0) {  // zero, or fraction 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// The nearest binary16 number, ties to even; infinity beyond the largest.
std::uint16_t narrowed_half(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return sign | 0x7e00;
  constexpr int lowest = -14, highest = 15, fraction_bits = 10;
  int exponent = 0;
  std::frexp(x, &exponent);  // |x| in [1/2, 1) 2^exponent
  exponent = std::max(x == 0 ? lowest : exponent - 1, lowest);
  if (exponent > highest) return sign | 0x7c00;
  // The fraction includes the bit before the point, which adds one to the exponent of normal numbers. A fraction that
  // is rounded up to the next power of two does so too.
  const auto fraction = static_cast<int>(std::nearbyint(std::ldexp(std::abs(x), fraction_bits - exponent)));
  return static_cast<std::uint16_t>(sign | (((exponent - lowest) << fraction_bits) + fraction));
}

std::string_view type_name(DType dtype) {
  return std::find_if(std::begin(file_types), std::end(file_types), [&](const FileType& t) { return t.dtype == dtype; })
      ->name;
}

// The entry without its name. The Error names neither file nor tensor.
SafetensorsEntry parse_entry(const JsonValue& value, std::uint64_t data_begin, std::uint64_t data_bytes) {
  for (const JsonMember& part : value.members()) {
    const bool known = part.name == "dtype" || part.name == "shape" || part.name == "data_offsets";
    if (!known) fail("header", "unknown key '{}'", escape_for_print(part.name));
  }
  const std::string& written = value.string("dtype");
  const auto* type = std::find_if(std::begin(file_types), std::end(file_types),
                                  [&](const FileType& known) { return known.name == written; });
  if (type == std::end(file_types)) fail("header", "unknown type '{}'", escape_for_print(written));
  const std::vector<std::int64_t> offsets = value.at("data_offsets").integers();
  const bool ordered = offsets.size() == 2 && 0 <= offsets[0] && offsets[0] <= offsets[1] &&
                       static_cast<std::uint64_t>(offsets[1]) <= data_bytes;
  check(ordered, "header", "data_offsets must be two numbers, rising, within the {} bytes of data", data_bytes);
  SafetensorsEntry entry{"", type->name, type->dtype, shape_from_file(value.at("shape").integers(), type->bytes)};
  entry.begin = data_begin + static_cast<std::uint64_t>(offsets[0]);
  entry.end = data_begin + static_cast<std::uint64_t>(offsets[1]);
  const auto needed = static_cast<std::uint64_t>(entry.shape.numel()) * type->bytes;
  check(entry.end - entry.begin == needed, "header", "{} {} takes {} bytes, but data_offsets hold {}", type->name,
        entry.shape, needed, entry.end - entry.begin);
  return entry;
}

std::vector<std::size_t> order_by(const std::vector<SafetensorsEntry>& entries, auto key) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return key(entries[a]) < key(entries[b]); });
  return order;
}

// Every byte of the data belongs to exactly one tensor.
void check_tiling(const std::string& file, const std::vector<SafetensorsEntry>& entries, std::uint64_t begin,
                  std::uint64_t end) {
  std::uint64_t position = begin;
  for (const std::size_t index :
       order_by(entries, [](const auto& entry) { return std::pair(entry.begin, entry.end); })) {
    const SafetensorsEntry& entry = entries[index];
    if (entry.begin != position) {
      fail("safetensors", "{}: tensor '{}{} begins at byte {}, not {}", file, escape_for_print(entry.name),
           entry.begin < position ? "' overlaps the one before it: it" : "' leaves a hole before it: it", entry.begin,
           position);
    }
    position = entry.end;
  }
  check(position == end, "safetensors", "{}: bytes {} to {} belong to no tensor", file, position, end);
}

// Parses entry by entry, so that a malformed header is rejected at its first error.
SafetensorsHeader parse_header(std::string_view text, const std::string& file, std::uint64_t data_bytes) {
  const std::uint64_t data_begin = length_bytes + text.size();
  const JsonLimits limits{.max_depth = 4, .max_values = max_entries + 1, .integers_only = true};
  SafetensorsHeader header;
  bool metadata_seen = false;
  parse_json_members(text, limits, file, length_bytes, [&](JsonMember& member) {
    if (member.name == metadata_key) {
      check(!std::exchange(metadata_seen, true), "header", "the name stands here again");
      for (JsonMember& part : member.value.members()) {
        header.metadata.emplace(std::move(part.name), std::move(part.value.string()));
      }
    } else {
      check(header.entries.size() < max_entries, "header", "more than {} tensors", max_entries);
      header.entries.push_back(parse_entry(member.value, data_begin, data_bytes));
      header.entries.back().name = std::move(member.name);
    }
  });
  header.by_name = order_by(header.entries, [](const auto& entry) { return std::string_view(entry.name); });
  const auto twin = std::adjacent_find(header.by_name.begin(), header.by_name.end(), [&](auto a, auto b) {
    return header.entries[a].name == header.entries[b].name;
  });
  if (twin != header.by_name.end()) {
    fail("safetensors", "{}: the name '{}' stands there twice", file, escape_for_print(header.entries[*twin].name));
  }
  check_tiling(file, header.entries, data_begin, data_begin + data_bytes);
  return header;
}

// Names, types and shapes, each as written to the file.
using Description = std::vector<std::pair<std::string, std::string>>;

std::string described(std::string_view type, const Shape& shape) { return formatted("{} {}", type, shape); }
std::string tensor_key(std::string_view name) { return formatted("{}.{}", checksum_key, name); }

// Over the metadata except the header's own checksum, then the tensors in the order of the file.
std::string header_checksum(const Metadata& metadata, const Description& tensors) {
  std::uint32_t value = 0;
  const auto add = [&](std::string_view name, std::string_view text) {
    // Lengths keep ("ab", "c") and ("a", "bc") apart.
    const std::string line = formatted("{} {} {} {}\n", name.size(), name, text.size(), text);
    value = crc32c(std::as_bytes(std::span(line)), value);
  };
  for (const auto& [key, text] : metadata) {
    if (key != checksum_key) add(key, text);
  }
  for (const auto& [name, description] : tensors) add(name, description);
  return checksum_text(value);
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file(path);
  const FileReader& reader = file.reader_;
  check(reader.size() >= length_bytes, "safetensors", "{}: has {} bytes, fewer than the 8 of the header length",
        reader.name(), reader.size());
  std::uint64_t header_bytes = 0;
  reader.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  check(header_bytes <= max_header_bytes, "safetensors", "{}: byte 0: header length {} is over {}", reader.name(),
        header_bytes, max_header_bytes);
  check(header_bytes >= 2 && header_bytes <= reader.size() - length_bytes, "safetensors",
        "{}: byte 0: header length {} does not fit a file of {} bytes", reader.name(), header_bytes, reader.size());
  file.header_ = parse_header(reader.read_string(length_bytes, header_bytes), reader.name(),
                              reader.size() - length_bytes - header_bytes);
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto& entries = header_.entries;
  const auto found = std::lower_bound(header_.by_name.begin(), header_.by_name.end(), name,
                                      [&](std::size_t index, std::string_view n) { return entries[index].name < n; });
  return found == header_.by_name.end() || entries[*found].name != name ? nullptr : &entries[*found];
}

const SafetensorsEntry& SafetensorsFile::entry_of(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  check(entry != nullptr, "safetensors", "{}: has no tensor '{}'", path(), escape_for_print(name));
  return *entry;
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry& entry = entry_of(name);
  check(entry.dtype.has_value(), "safetensors",
        "{}: tensor '{}' has type {}; only F32, F64, BF16, I32, I64 and BOOL can be loaded", path(),
        escape_for_print(name), entry.type);
  return read_tensor(reader_, entry.begin, entry.shape, *entry.dtype, name);
}

Tensor SafetensorsFile::read_widened(std::string_view name) const {
  const SafetensorsEntry& entry = entry_of(name);
  if (entry.type == "F32") return read(name);
  const bool half = entry.type == "F16";
  check(half || entry.type == "BF16", "safetensors", "{}: tensor '{}' has type {}; weights are F32, F16 or BF16",
        path(), escape_for_print(name), entry.type);
  const Tensor tensor = Tensor::empty(entry.shape);
  const std::span<float> target = tensor.span<float>();
  std::vector<std::uint16_t> chunk(std::min<std::size_t>(target.size(), std::size_t{1} << 19));
  for (std::size_t first = 0; first < target.size(); first += chunk.size()) {
    const auto part = std::span(chunk).first(std::min(chunk.size(), target.size() - first));
    reader_.read(entry.begin + 2 * first, std::as_writable_bytes(part));
    for (std::size_t n = 0; n < part.size(); ++n) {
      // BF16 is the upper half of an F32.
      target[first + n] = half ? widened_half(part[n]) : std::bit_cast<float>(std::uint32_t{part[n]} << 16);
    }
  }
  return tensor;
}

std::uint32_t SafetensorsFile::checksum(const SafetensorsEntry& entry) const {
  std::vector<std::byte> chunk(std::min<std::uint64_t>(entry.end - entry.begin, std::uint64_t{1} << 20));
  std::uint32_t value = 0;
  for (std::uint64_t position = entry.begin; position < entry.end; position += chunk.size()) {
    const auto bytes = std::span(chunk).first(std::min<std::uint64_t>(chunk.size(), entry.end - position));
    reader_.read(position, bytes);
    value = crc32c(bytes, value);
  }
  return value;
}

namespace {

// The elements as two bytes each. Throws Error if a finite one exceeds the range of the type.
std::vector<std::uint16_t> halves_of(std::string_view name, const Tensor& tensor) {
  const Tensor wide = to_file_order("safetensors", name, tensor.to(DType::f64));
  std::vector<std::uint16_t> halves;
  halves.reserve(static_cast<std::size_t>(wide.numel()));
  for (const double x : wide.span<double>()) {
    halves.push_back(narrowed_half(x));
    check((halves.back() & 0x7fff) != 0x7c00 || std::isinf(x), "safetensors",
          "tensor '{}' has an element of {}, and F16 ends at 65504; BF16 has the range of F32", escape_for_print(name),
          x);
  }
  return halves;
}

}  // namespace

void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata,
                       FloatsAs floats) {
  const std::string file = escape_for_print(path, 1000);
  JsonValue::Object header;
  if (!metadata.empty()) {
    JsonValue::Object texts;
    for (const auto& [key, text] : metadata) texts.push_back({key, text});
    header.push_back({std::string(metadata_key), std::move(texts)});
  }
  std::uint64_t position = 0;
  for (const auto& [name, tensor] : tensors) {
    check(tensor.defined(), "safetensors", "tensor '{}' is undefined", escape_for_print(name));
    JsonValue::Array sizes;
    for (int axis = 0; axis < tensor.rank(); ++axis) sizes.push_back(tensor.shape()[axis]);
    const bool narrowed = floats != FloatsAs::given && is_floating(tensor.dtype());
    const std::string_view type = !narrowed                 ? type_name(tensor.dtype())
                                  : floats == FloatsAs::f16 ? "F16"
                                                            : type_name(DType::bf16);
    const std::size_t element_bytes = narrowed ? sizeof(std::uint16_t) : size_of(tensor.dtype());
    const std::uint64_t end = position + static_cast<std::uint64_t>(tensor.numel()) * element_bytes;
    header.push_back(
        {name, JsonValue::object(
                   {{"dtype", type}, {"shape", std::move(sizes)}, {"data_offsets", JsonValue::Array{position, end}}})});
    position = end;
  }
  std::string text = write_json(std::move(header));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check(text.size() <= max_header_bytes, "safetensors",
        "{}: the header would have {} bytes; at most {} can be read again", file, text.size(), max_header_bytes);
  parse_header(text, file, position);  // rejects a header that could not be read back
  const std::uint64_t header_bytes = text.size();
  AtomicFile target(path);
  target.write(std::as_bytes(std::span(&header_bytes, 1)));
  target.write(text);
  // Makes one copy at a time, if tensors are not dense or not on the CPU.
  for (const auto& [name, tensor] : tensors) {
    const bool narrowed = floats != FloatsAs::given && is_floating(tensor.dtype());
    if (narrowed && floats == FloatsAs::f16) {
      const std::vector<std::uint16_t> halves = halves_of(name, tensor);
      target.write(std::as_bytes(std::span(halves)));
    } else {
      target.write(bytes_of(to_file_order("safetensors", name, narrowed ? tensor.to(DType::bf16) : tensor)));
    }
  }
  target.finish();
}

void add_checksums(Metadata& metadata, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const Tensor dense = to_file_order("safetensors", name, tensor);
    metadata[tensor_key(name)] = checksum_text(crc32c(bytes_of(dense)));
  }
  Description description;
  for (const auto& [name, tensor] : tensors)
    description.push_back({name, described(type_name(tensor.dtype()), tensor.shape())});
  metadata[std::string(checksum_key)] = header_checksum(metadata, description);
}

std::vector<std::string> verify_checksums(const SafetensorsFile& file) {
  const auto holds = [&](const std::string& key, const std::string& checksum) {
    const auto found = file.metadata().find(key);
    return found != file.metadata().end() && found->second == checksum;
  };
  std::vector<std::string> bad;
  Description description;
  for (const SafetensorsEntry& entry : file.entries()) {
    description.push_back({entry.name, described(entry.type, entry.shape)});
    if (!holds(tensor_key(entry.name), checksum_text(file.checksum(entry)))) bad.push_back(entry.name);
  }
  if (!holds(std::string(checksum_key), header_checksum(file.metadata(), description))) bad.emplace_back(metadata_key);
  return bad;
}

}  // namespace tally

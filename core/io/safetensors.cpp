#include "core/io/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <set>

#include "core/io/atomic_file.hpp"
#include "core/io/checksum.hpp"
#include "core/io/element_bytes.hpp"
#include "core/io/json.hpp"
#include "core/io/utf8.hpp"

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
    {"BF16", 2, std::nullopt},    {"I8", 1, std::nullopt},      {"U8", 1, std::nullopt},
    {"I16", 2, std::nullopt},     {"U16", 2, std::nullopt},     {"U32", 4, std::nullopt},
    {"U64", 8, std::nullopt},     {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt},
};

std::string_view type_name(DType dtype) {
  return std::find_if(std::begin(file_types), std::end(file_types), [&](const FileType& t) { return t.dtype == dtype; })
      ->name;
}

// The header, token by token, so that a hostile one is left as soon as it goes wrong.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view source, std::uint64_t data_bytes)
      : scanner_(text, {.max_depth = 4, .max_members = max_entries + 1, .integers_only = true}, source, length_bytes),
        data_begin_(length_bytes + text.size()),
        data_bytes_(data_bytes) {}

  void parse(Metadata& metadata, std::vector<SafetensorsEntry>& entries) {
    const JsonToken open = scanner_.next();
    if (open.kind != JsonTokenKind::begin_object) fail_at(open.offset, "expected an object");
    for (JsonToken name = scanner_.next(); name.kind != JsonTokenKind::end_object; name = scanner_.next()) {
      name_ = name.text;
      if (name_ == metadata_key) {
        parse_metadata(metadata);
      } else {
        if (entries.size() == max_entries) fail_at(name.offset, "more than ", max_entries, " tensors");
        entries.push_back(parse_entry(name.offset));
      }
    }
    scanner_.next();  // nothing but blanks may follow
  }

 private:
  // What an entry says, before it is put together.
  struct Parts {
    const FileType* type = nullptr;
    std::optional<std::vector<std::int64_t>> sizes;
    std::optional<std::vector<std::int64_t>> offsets;
  };

  template <class... Pieces>
  [[noreturn]] void fail_at(std::uint64_t offset, const Pieces&... pieces) const {
    fail("safetensors", scanner_.source(), ": byte ", offset, ": ", pieces...);
  }

  template <class... Pieces>
  [[noreturn]] void fail_in_entry(std::uint64_t offset, const Pieces&... pieces) const {
    fail_at(offset, name_ == metadata_key ? "" : "tensor ", "'", escape_for_print(name_), "': ", pieces...);
  }

  JsonToken expect(JsonTokenKind kind, std::string_view what) {
    const JsonToken token = scanner_.next();
    if (token.kind != kind) fail_in_entry(token.offset, "expected ", what);
    return token;
  }

  void parse_metadata(Metadata& metadata) {
    expect(JsonTokenKind::begin_object, "an object");
    for (JsonToken key = scanner_.next(); key.kind != JsonTokenKind::end_object; key = scanner_.next()) {
      metadata.emplace_hint(metadata.end(), key.text, expect(JsonTokenKind::string, "a string").text);
    }
  }

  const FileType* parse_type() {
    const JsonToken token = expect(JsonTokenKind::string, "the name of a type");
    const auto* known = std::find_if(std::begin(file_types), std::end(file_types),
                                     [&](const FileType& t) { return t.name == token.text; });
    if (known == std::end(file_types)) fail_in_entry(token.offset, "unknown type '", escape_for_print(token.text), "'");
    return known;
  }

  std::vector<std::int64_t> parse_integers(std::size_t max_count, std::string_view what) {
    const JsonToken open = expect(JsonTokenKind::begin_array, what);
    std::vector<std::int64_t> values;
    for (JsonToken token = scanner_.next(); token.kind != JsonTokenKind::end_array; token = scanner_.next()) {
      if (token.kind != JsonTokenKind::integer) fail_in_entry(token.offset, "expected ", what);
      if (values.size() == max_count) fail_in_entry(open.offset, "expected ", what);
      values.push_back(token.integer);
    }
    return values;
  }

  SafetensorsEntry parse_entry(std::uint64_t offset) {
    Parts parts;
    expect(JsonTokenKind::begin_object, "an object");
    for (JsonToken key = scanner_.next(); key.kind != JsonTokenKind::end_object; key = scanner_.next()) {
      if (key.text == "dtype") {
        parts.type = parse_type();
      } else if (key.text == "shape") {
        parts.sizes = parse_integers(max_rank, "a shape of at most 8 integers");
      } else if (key.text == "data_offsets") {
        parts.offsets = parse_integers(2, "two offsets");
      } else {
        fail_in_entry(key.offset, "unknown key '", escape_for_print(key.text), "'");
      }
    }
    if (parts.type == nullptr) fail_in_entry(offset, "dtype is missing");
    if (!parts.sizes) fail_in_entry(offset, "shape is missing");
    if (!parts.offsets) fail_in_entry(offset, "data_offsets is missing");
    return make_entry(offset, *parts.type, *parts.sizes, *parts.offsets);
  }

  SafetensorsEntry make_entry(std::uint64_t offset, const FileType& type, const std::vector<std::int64_t>& sizes,
                              const std::vector<std::int64_t>& offsets) const {
    const bool ordered = offsets.size() == 2 && 0 <= offsets[0] && offsets[0] <= offsets[1] &&
                         static_cast<std::uint64_t>(offsets[1]) <= data_bytes_;
    if (!ordered) {
      fail_in_entry(offset, "data_offsets must be two numbers, rising, within the ", data_bytes_, " bytes of data");
    }
    const std::string problem = shape_problem(sizes, type.bytes);
    if (!problem.empty()) fail_in_entry(offset, problem);
    SafetensorsEntry entry{std::string(name_), type.name, type.dtype, shape_of(sizes)};
    const auto bytes = static_cast<std::uint64_t>(offsets[1] - offsets[0]);
    const auto needed = static_cast<std::uint64_t>(entry.shape.numel()) * type.bytes;
    if (bytes != needed) {
      fail_in_entry(offset, type.name, " ", entry.shape, " takes ", needed, " bytes, but data_offsets hold ", bytes);
    }
    entry.begin = data_begin_ + static_cast<std::uint64_t>(offsets[0]);
    entry.end = entry.begin + bytes;
    return entry;
  }

  JsonScanner scanner_;
  std::uint64_t data_begin_;
  std::uint64_t data_bytes_;
  std::string_view name_;  // of the entry being read
};

std::vector<std::size_t> order_by(const std::vector<SafetensorsEntry>& entries, auto before) {
  std::vector<std::size_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return before(entries[a], entries[b]); });
  return order;
}

// Every byte of the data belongs to exactly one tensor.
void check_tiling(const std::string& file, const std::vector<SafetensorsEntry>& entries, std::uint64_t begin,
                  std::uint64_t end) {
  const auto order = order_by(entries, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t position = begin;
  for (const std::size_t place : order) {
    const SafetensorsEntry& entry = entries[place];
    check(entry.begin == position, "safetensors", file, ": tensor '", escape_for_print(entry.name),
          entry.begin < position ? "' overlaps the one before it: it" : "' leaves a hole before it: it",
          " begins at byte ", entry.begin, ", not ", position);
    position = entry.end;
  }
  check(position == end, "safetensors", file, ": bytes ", position, " to ", end, " belong to no tensor");
}

// Over the metadata but for the header's own checksum, then names, types and shapes in the order of the file.
class HeaderChecksum {
 public:
  explicit HeaderChecksum(const Metadata& metadata) {
    for (const auto& [key, text] : metadata) {
      if (key != checksum_key) add(key, text);
    }
  }
  void add(std::string_view name, std::string_view text) {
    // Lengths keep ("ab", "c") and ("a", "bc") apart.
    const std::string line = concat(name.size(), " ", name, " ", text.size(), " ", text, "\n");
    value_ = crc32c(std::as_bytes(std::span(line)), value_);
  }
  void add_tensor(std::string_view name, std::string_view type, const Shape& shape) {
    add(name, concat(type, " ", shape));
  }
  std::string text() const { return checksum_text(value_); }

 private:
  std::uint32_t value_ = 0;
};

std::string tensor_key(std::string_view name) { return concat(checksum_key, ".", name); }

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file(path);
  const FileReader& reader = file.reader_;
  check(reader.size() >= length_bytes, "safetensors", reader.name(), ": has ", reader.size(),
        " bytes, fewer than the 8 of the header length");
  std::uint64_t header_bytes = 0;
  reader.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  check(header_bytes <= max_header_bytes, "safetensors", reader.name(), ": byte 0: header length ", header_bytes,
        " is over ", max_header_bytes);
  check(header_bytes >= 2 && header_bytes <= reader.size() - length_bytes, "safetensors", reader.name(),
        ": byte 0: header length ", header_bytes, " does not fit a file of ", reader.size(), " bytes");
  const std::string header = reader.read_string(length_bytes, header_bytes);
  const std::uint64_t data_begin = length_bytes + header_bytes;
  HeaderParser(header, reader.name(), reader.size() - data_begin).parse(file.metadata_, file.entries_);
  check_tiling(reader.name(), file.entries_, data_begin, reader.size());
  file.by_name_ = order_by(file.entries_, [](const auto& a, const auto& b) { return a.name < b.name; });
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](std::size_t index, std::string_view n) { return entries_[index].name < n; });
  return place == by_name_.end() || entries_[*place].name != name ? nullptr : &entries_[*place];
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  check(entry != nullptr, "safetensors", path(), ": has no tensor '", escape_for_print(name), "'");
  check(entry->dtype.has_value(), "safetensors", path(), ": tensor '", escape_for_print(name), "' has type ",
        entry->type, "; only F32, F64, I32, I64 and BOOL can be loaded");
  return read_tensor(reader_, entry->begin, entry->shape, *entry->dtype, name);
}

std::uint32_t SafetensorsFile::checksum(const SafetensorsEntry& entry) const {
  std::vector<std::byte> piece(std::min<std::uint64_t>(entry.end - entry.begin, std::uint64_t{1} << 20));
  std::uint32_t value = 0;
  for (std::uint64_t position = entry.begin; position < entry.end; position += piece.size()) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), entry.end - position));
    reader_.read(position, part);
    value = crc32c(part, value);
  }
  return value;
}

void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  const std::string file = escape_for_print(path, 1000);
  check(tensors.size() <= max_entries, "safetensors", file, ": more than ", max_entries, " tensors");
  JsonValue::Object header;
  if (!metadata.empty()) {
    JsonValue::Object texts;
    for (const auto& [key, text] : metadata) texts.push_back({key, text});
    header.push_back({std::string(metadata_key), std::move(texts)});
  }
  std::set<std::string_view> names{metadata_key};
  std::vector<Tensor> dense;  // keeps the bytes of copies alive
  std::vector<std::span<const std::byte>> chunks(1);
  std::uint64_t position = 0;
  for (const auto& [name, tensor] : tensors) {
    check(names.insert(name).second, "safetensors", file, ": two tensors, or one and the metadata, are called '",
          escape_for_print(name), "'");
    dense.push_back(to_file_order("safetensors", name, tensor));
    chunks.push_back(bytes_of(dense.back()));
    JsonValue::Array sizes;
    for (int axis = 0; axis < tensor.rank(); ++axis) sizes.push_back(tensor.shape()[axis]);
    const std::uint64_t end = position + chunks.back().size();
    header.push_back({name, JsonValue::object({{"dtype", type_name(tensor.dtype())},
                                               {"shape", std::move(sizes)},
                                               {"data_offsets", JsonValue::Array{position, end}}})});
    position = end;
  }
  std::string text = write_json(std::move(header));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check(text.size() <= max_header_bytes, "safetensors", file, ": the header would have ", text.size(),
        " bytes; at most ", max_header_bytes, " can be read again");
  const std::uint64_t header_bytes = text.size();
  text.insert(0, reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  chunks.front() = std::as_bytes(std::span(text));
  write_file_atomically(path, chunks);
}

void add_checksums(Metadata& metadata, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const Tensor dense = to_file_order("safetensors", name, tensor);
    metadata[tensor_key(name)] = checksum_text(crc32c(bytes_of(dense)));
  }
  HeaderChecksum header(metadata);
  for (const auto& [name, tensor] : tensors) header.add_tensor(name, type_name(tensor.dtype()), tensor.shape());
  metadata[std::string(checksum_key)] = header.text();
}

std::vector<std::string> verify_checksums(const SafetensorsFile& file) {
  const auto holds = [&](const std::string& key, const std::string& checksum) {
    const auto found = file.metadata().find(key);
    return found != file.metadata().end() && found->second == checksum;
  };
  std::vector<std::string> bad;
  HeaderChecksum header(file.metadata());
  for (const SafetensorsEntry& entry : file.entries()) {
    header.add_tensor(entry.name, entry.type, entry.shape);
    if (!holds(tensor_key(entry.name), checksum_text(file.checksum(entry)))) bad.push_back(entry.name);
  }
  if (!holds(std::string(checksum_key), header.text())) bad.emplace_back(metadata_key);
  return bad;
}

}  // namespace tally

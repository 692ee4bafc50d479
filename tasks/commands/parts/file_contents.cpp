#include "tasks/commands/parts/file_contents.hpp"

#include <algorithm>
#include <cstring>

#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "core/utf8.hpp"
#include "tasks/command_line/value_text.hpp"

namespace tally {
namespace {

constexpr std::string_view npy_magic = "\x93NUMPY", checksum_prefix = "checksum";

bool is_npy(const std::string& path) {
  const FileReader reader(path);
  return reader.size() >= npy_magic.size() && reader.read_string(0, npy_magic.size()) == npy_magic;
}

// A damaged safetensors file still counts, so that its reader can report the error. A file is not safetensors if its
// length field is text. It is not safetensors either if the length exceeds the file and no object follows.
bool may_be_safetensors(const std::string& path) {
  std::uint64_t header_bytes = 0;
  const FileReader reader(path);
  if (reader.size() <= sizeof header_bytes) return false;
  const std::string begin = reader.read_string(0, sizeof header_bytes + 1);
  std::memcpy(&header_bytes, begin.data(), sizeof header_bytes);
  const bool is_text = std::all_of(begin.begin(), begin.end() - 1, [](char c) { return '\t' <= c && c <= '~'; });
  return !is_text && (header_bytes <= reader.size() - sizeof header_bytes || begin.back() == '{');
}

JsonValue sizes_of(const Shape& shape) {
  JsonValue sizes = JsonValue::array();
  for (int axis = 0; axis < shape.rank; ++axis) sizes.push(shape[axis]);
  return sizes;
}

JsonValue npy_contents(const std::string& path) {
  const NpyHeader header = read_npy_header(path);
  return JsonValue::object({{"file", path},
                            {"type", name_of(header.dtype)},
                            {"shape", sizes_of(header.shape)},
                            {"fortran_order", header.fortran_order}});
}

JsonValue safetensors_contents(const SafetensorsFile& file) {
  JsonValue tensors = JsonValue::array(), metadata = JsonValue::object(), wrong = JsonValue::array();
  std::uint64_t bytes = 0;
  std::int64_t elements = 0;
  for (const auto& entry : file.entries()) {
    tensors.push(JsonValue::object({{"name", entry.name}, {"type", entry.type}, {"shape", sizes_of(entry.shape)}}));
    bytes += entry.end - entry.begin;
    elements += entry.shape.numel();
  }
  for (const auto& [key, value] : file.metadata()) metadata.set(key, value);
  if (metadata.contains(checksum_prefix)) {
    for (const std::string& name : verify_checksums(file)) wrong.push(name);
  }
  return JsonValue::object({{"file", file.path()},
                            {"tensors", std::move(tensors)},
                            {"elements", elements},
                            {"bytes", bytes},
                            {"metadata", std::move(metadata)},
                            {"bad_checksums", std::move(wrong)}});
}

}  // namespace

Result file_contents(const std::string& path) {
  if (is_npy(path)) return {.value = npy_contents(path)};
  check(may_be_safetensors(path), "describe", "{}: is neither a safetensors nor a .npy file",
        escape_for_print(path, 1000));
  JsonValue value = safetensors_contents(SafetensorsFile::open(path)), shown = value;
  JsonValue metadata = JsonValue::object();
  for (const JsonMember& member : value.at("metadata").members()) {
    if (!member.name.starts_with(checksum_prefix)) metadata.set(member.name, member.value);
  }
  std::string text = value_text(shown.set("metadata", std::move(metadata)));
  const bool is_good = value.elements("bad_checksums").empty();
  return {is_good ? exit_code::done : exit_code::failed, std::move(value), std::move(text)};
}

}  // namespace tally

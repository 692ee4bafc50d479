// tally show: lists the contents of a .safetensors or .npy file. Names and texts in the file are untrusted and printed
// escaped.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/io/npy.hpp"
#include "core/io/safetensors.hpp"
#include "core/utf8.hpp"
#include "tasks/checks/estimate.hpp"
#include "tasks/command_line/commands.hpp"
#include "tasks/print/statistics.hpp"

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

Result show_npy(const std::string& path) {
  const NpyHeader header = read_npy_header(path);
  return {.value = JsonValue::object({{"file", path},
                                      {"type", name_of(header.dtype)},
                                      {"shape", sizes_of(header.shape)},
                                      {"fortran_order", header.fortran_order}}),
          .text = formatted("{}: {} {}{}\n", escape_for_print(path, 1000), header.dtype, header.shape,
                            header.fortran_order ? ", first axis fastest" : "")};
}

// The tensors whose checksums are wrong; empty if the file has no checksums.
std::vector<std::string> bad_checksums(const SafetensorsFile& file) {
  if (!file.metadata().contains(std::string(checksum_prefix))) return {};
  return verify_checksums(file);
}

std::string text_of(const SafetensorsFile& file, const std::vector<std::string>& bad) {
  std::string text;
  std::size_t width = 0;
  for (const auto& entry : file.entries()) width = std::max(width, escape_for_print(entry.name).size());
  std::uint64_t bytes = 0;
  std::int64_t elements = 0;
  for (const auto& entry : file.entries()) {
    const std::string name = escape_for_print(entry.name);
    text += formatted("{}{}{}{}{}\n", name, std::string(width + 2 - name.size(), ' '), entry.type,
                      std::string(6 - std::min<std::size_t>(entry.type.size(), 5), ' '), entry.shape);
    bytes += entry.end - entry.begin;
    elements += entry.shape.numel();
  }
  text += formatted("{} tensors, {} elements, {}\n", file.entries().size(), with_commas(elements),
                    bytes_text(static_cast<double>(bytes)));
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with(checksum_prefix)) continue;
    text += formatted("  {}: {}\n", escape_for_print(key), escape_for_print(value, 2000));
  }
  if (bad.empty() && file.metadata().contains(std::string(checksum_prefix))) text += "all checksums hold\n";
  for (const std::string& name : bad) text += formatted("checksum does not hold: {}\n", escape_for_print(name));
  return text;
}

JsonValue json_of(const SafetensorsFile& file, const std::vector<std::string>& bad) {
  JsonValue tensors = JsonValue::array(), metadata = JsonValue::object(), wrong = JsonValue::array();
  for (const auto& entry : file.entries()) {
    tensors.push(JsonValue::object({{"name", entry.name}, {"type", entry.type}, {"shape", sizes_of(entry.shape)}}));
  }
  for (const auto& [key, value] : file.metadata()) metadata.set(key, value);
  for (const std::string& name : bad) wrong.push(name);
  return JsonValue::object({{"file", file.path()},
                            {"tensors", std::move(tensors)},
                            {"metadata", std::move(metadata)},
                            {"bad_checksums", std::move(wrong)}});
}

Result run_show(const std::string& path) {
  if (is_npy(path)) return show_npy(path);
  check(may_be_safetensors(path), "show", "{}: is neither a safetensors nor a .npy file", escape_for_print(path, 1000));
  const SafetensorsFile file = SafetensorsFile::open(path);
  const std::vector<std::string> bad = bad_checksums(file);
  return {bad.empty() ? exit_code::done : exit_code::failed, json_of(file, bad), text_of(file, bad)};
}

}  // namespace

std::function<Result()> declare_show(CommandLine& line) {
  const auto path = std::make_shared<std::string>();
  line.add("FILE", path.get(), ".safetensors or .npy file", {.required = true});
  return [path] { return run_show(*path); };
}

}  // namespace tally

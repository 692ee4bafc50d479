#include "core/io/reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/utf8.hpp"

static_assert(std::endian::native == std::endian::little && sizeof(bool) == 1, "files have the bytes of memory");

namespace tally {
namespace {

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// A Git LFS pointer (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md) replaces a file that was not fetched:
// lines of a key and a value, fewer than 1,024 bytes.
constexpr std::string_view lfs_begin = "version https://git-lfs.github.com/spec/";
constexpr std::uint64_t most_lfs_bytes = 1024;

void refuse_lfs_pointer(const FileReader& reader) {
  if (reader.size() < lfs_begin.size() || reader.size() >= most_lfs_bytes) return;
  const std::string text = reader.read_string(0, reader.size());
  if (!text.starts_with(lfs_begin)) return;
  const std::size_t size = text.find("\nsize "), begin = size == text.npos ? text.size() : size + 6;
  fail("file",
       "{}: is a Git LFS pointer and not the file itself, which has {} bytes and was not fetched; 'git lfs pull' in "
       "its repository does that, or download the file itself",
       reader.name(),
       begin == text.size() ? "" : escape_for_print(text.substr(begin, text.find('\n', begin) - begin), 20));
}

}  // namespace

FileReader::FileReader(const std::string& path) : name_(escape_for_print(path, 1000)) {
  check(path.find('\0') == std::string::npos, "file", "{}: a path cannot hold a zero byte", name_);
  // O_NONBLOCK: otherwise opening a pipe without a writer would block for ever.
  file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  check(file_.open(), "file", "{}: cannot be opened: {}", name_, std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(file_.number(), &status) == 0;
  check(known, "file", "{}: cannot be examined: {}", name_, std::strerror(errno));
  check(S_ISREG(status.st_mode), "file", "{}: is {}, not a file", name_, kind_of(status.st_mode));
  size_ = static_cast<std::uint64_t>(status.st_size);
  refuse_lfs_pointer(*this);
}

void FileReader::check_range(std::uint64_t offset, std::uint64_t bytes) const {
  check(offset <= size_ && bytes <= size_ - offset, "file",
        "{}: {} bytes at byte {} lie past the end; the file has {} bytes", name_, bytes, offset, size_);
}

void FileReader::read(std::uint64_t offset, std::span<std::byte> target) const {
  check_range(offset, target.size());
  constexpr std::size_t longest_read = std::size_t{1} << 30;  // Linux reads less than 2 GiB at a time
  while (!target.empty()) {
    const ssize_t count =
        ::pread(file_.number(), target.data(), std::min(target.size(), longest_read), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    check(count >= 0, "file", "{}: cannot be read at byte {}: {}", name_, offset, std::strerror(errno));
    check(count > 0, "file", "{}: ends at byte {}; it had {} bytes when it was opened and has become shorter since",
          name_, offset, size_);
    target = target.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string FileReader::read_string(std::uint64_t offset, std::uint64_t bytes) const {
  check_range(offset, bytes);
  std::string text(bytes, '\0');
  read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_whole_file(const std::string& path, std::uint64_t max_bytes) {
  const FileReader reader(path);
  check(reader.size() <= max_bytes, "file", "{}: has {} bytes; at most {} are read here", reader.name(), reader.size(),
        max_bytes);
  return reader.read_string(0, reader.size());
}

std::string read_text(const std::string& path, std::uint64_t max_bytes) {
  std::string text = read_whole_file(path, max_bytes);
  check(!text.empty(), "text", "{}: is empty", escape_for_print(path, 1000));
  const std::size_t invalid = find_invalid_utf8(text);
  check(invalid == std::string::npos, "text", "{}: byte {} is not UTF-8", escape_for_print(path, 1000), invalid);
  return text;
}

Shape shape_from_file(std::span<const std::int64_t> sizes, std::size_t element_bytes) {
  constexpr std::int64_t largest = std::int64_t{1} << 31;
  check(sizes.size() <= max_rank, "shape", "rank {} is over {}", sizes.size(), max_rank);
  Shape shape;
  auto bytes = static_cast<std::int64_t>(element_bytes);
  for (const std::int64_t size : sizes) {
    check(0 <= size && size <= largest, "shape", "size {} is not in 0 to 2^31", size);
    const bool wraps = __builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes);
    check(!wraps, "shape", "the product of the sizes does not fit 63 bits");
    shape.append(size);
  }
  return shape;
}

Tensor read_tensor(const FileReader& reader, std::uint64_t offset, const Shape& shape, DType dtype,
                   std::string_view name) {
  Tensor tensor = Tensor::empty(shape, dtype);
  const std::span<std::byte> bytes = bytes_of(tensor);
  reader.read(offset, bytes);
  if (dtype == DType::boolean) {
    const auto wrong = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    check(wrong == bytes.end(), "file", "{}: tensor '{}': byte {} of a bool is neither 0 nor 1", reader.name(),
          escape_for_print(name), offset + static_cast<std::uint64_t>(wrong - bytes.begin()));
  }
  return tensor;
}

Tensor to_file_order(std::string_view where, std::string_view name, const Tensor& tensor) {
  check(tensor.defined(), where, "tensor '{}' is undefined", escape_for_print(name));
  return tensor.to_dense().to(Device{});
}

}  // namespace tally

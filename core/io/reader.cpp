#include "core/io/reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/error.hpp"
#include "core/io/utf8.hpp"

namespace tally {
namespace {

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

FileReader::FileReader(const std::string& path) : name_(escape_for_print(path, 1000)) {
  check(path.find('\0') == std::string::npos, "file", name_, ": a path cannot hold a zero byte");
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  file_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  check(file_.open(), "file", name_, ": cannot be opened: ", std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(file_.number(), &status) == 0;
  check(known, "file", name_, ": cannot be examined: ", std::strerror(errno));
  check(S_ISREG(status.st_mode), "file", name_, ": is ", kind_of(status.st_mode), ", not a file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void FileReader::check_range(std::uint64_t offset, std::uint64_t bytes) const {
  const auto end = checked_add(offset, bytes);
  check(end && *end <= size_, "file", name_, ": ", bytes, " bytes at byte ", offset, " lie past the end; the file has ",
        size_, " bytes");
}

void FileReader::read(std::uint64_t offset, std::span<std::byte> target) const {
  check_range(offset, target.size());
  constexpr std::size_t longest_read = std::size_t{1} << 30;  // Linux reads less than 2 GiB at a time
  while (!target.empty()) {
    const ssize_t count =
        ::pread(file_.number(), target.data(), std::min(target.size(), longest_read), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    check(count >= 0, "file", name_, ": cannot be read at byte ", offset, ": ", std::strerror(errno));
    check(count > 0, "file", name_, ": ends at byte ", offset, "; it had ", size_,
          " bytes when it was opened and has become shorter since");
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
  check(reader.size() <= max_bytes, "file", reader.name(), ": has ", reader.size(), " bytes; at most ", max_bytes,
        " are read here");
  return reader.read_string(0, reader.size());
}

std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::string shape_problem(std::span<const std::int64_t> sizes, std::size_t element_bytes) {
  constexpr std::int64_t largest = std::int64_t{1} << 31;
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (sizes.size() > max_rank) return concat("rank ", sizes.size(), " is over ", max_rank);
  std::uint64_t bytes = element_bytes;
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > largest) return concat("size ", size, " is not in 0 to 2^31");
    const auto product = checked_multiply(bytes, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)));
    if (!product || *product > limit) return "the product of the sizes does not fit 63 bits";
    bytes = *product;
  }
  return "";
}

Shape shape_of(std::span<const std::int64_t> sizes) {
  Shape shape;
  for (const std::int64_t size : sizes) shape.append(size);
  return shape;
}

}  // namespace tally

#include "tasks/text/prepare/source_files.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tally {
namespace {

namespace fs = std::filesystem;
using Problem = SourceFile::Problem;

class Walk {
 public:
  std::vector<SourceFile> files;

  // `below`: path of the folder below the source, empty for the source. `real`: the folder without links.
  void enter(const fs::path& folder, const fs::path& below, const fs::path& real) {
    if (std::ranges::count(entered_, real) > 0) {
      return add(below, Problem::not_a_file, "links to a folder that holds the link", true);
    }
    entered_.push_back(real);
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    while (!error && entries != fs::directory_iterator()) {
      visit(*entries, below / entries->path().filename(), real);
      entries.increment(error);
    }
    if (error) add(below, Problem::unreadable, error.message(), true);
    entered_.pop_back();
  }

 private:
  void visit(const fs::directory_entry& entry, const fs::path& below, const fs::path& real) {
    std::error_code error;
    const bool is_link = entry.is_symlink(error);
    const fs::file_status status = fs::status(entry.path(), error);
    if (status.type() == fs::file_type::none) return add(below, Problem::unreadable, error.message());
    if (!fs::exists(status)) return add(below, Problem::unreadable, "links to a file that does not exist");
    if (fs::is_regular_file(status)) return add(below, Problem::none, "");
    if (!fs::is_directory(status)) {
      return add(below, Problem::not_a_file, "is a pipe, a socket or a device, not a file");
    }
    const fs::path target = is_link ? fs::canonical(entry.path(), error) : real / entry.path().filename();
    if (error) return add(below, Problem::unreadable, error.message(), true);
    enter(entry.path(), below, target);
  }

  void add(const fs::path& path, Problem problem, std::string reason, bool is_folder = false) {
    files.push_back({path.string(), problem, std::move(reason), is_folder});
  }

  std::vector<fs::path> entered_;  // from the source to the folder at work, without links
};

}  // namespace

std::vector<SourceFile> files_below(const std::string& folder) {
  Walk walk;
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  walk.enter(folder, "", error ? fs::path(folder) : real);
  std::ranges::sort(walk.files, {}, &SourceFile::path);
  return std::move(walk.files);
}

std::string binary_kind(std::string_view begin) {
  using namespace std::string_view_literals;
  static constexpr std::string_view decompress = "; decompress it first",
                                    convert = "; write its texts as JSON lines, {\"text\": ...}, first",
                                    recode = "; convert it to UTF-8 first";
  static constexpr struct {
    std::string_view magic, name, advice;
  } kinds[] = {
      {"\x1f\x8b"sv, "a gzip file", decompress},
      {"\x28\xb5\x2f\xfd"sv, "a Zstandard file", decompress},
      {"\xfd\x37zXZ\0"sv, "an xz file", decompress},
      {"BZh"sv, "a bzip2 file", decompress},
      {"PK\x03\x04"sv, "a ZIP archive", decompress},
      {"PAR1"sv, "a Parquet file", convert},
      {"ARROW1"sv, "an Arrow file", convert},
      {"\xff\xff\xff\xff"sv, "an Arrow stream", convert},
      {"SQLite format 3\0"sv, "an SQLite database", convert},
      {"%PDF-"sv, "a PDF document", ""sv},
      {"\x93NUMPY"sv, "a NumPy array", ""sv},
      {"\xff\xfe"sv, "UTF-16 text", recode},
      {"\xfe\xff"sv, "UTF-16 text", recode},
  };
  for (const auto& kind : kinds) {
    if (begin.starts_with(kind.magic)) return std::string(kind.name) + std::string(kind.advice);
  }
  return "";
}

}  // namespace tally

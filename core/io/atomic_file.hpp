// Writes a file so that readers find either the whole old content or the whole new content, whatever happens: a
// temporary file in the same folder, write, fsync, rename, fsync of the folder.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/io/file_descriptor.hpp"

namespace tally {

// A file that is written chunk by chunk and replaced at once by finish(). On any failure (disk full, no permission),
// and without finish(), the old file stays, the temporary is removed and an Error names the file and the reason. The
// temporary is called <path>.tmp; one that a killed process left behind is overwritten. Only a regular file is ever
// replaced; if the path is a link, its target is.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void finish();

 private:
  std::string target_, temporary_;
  FileDescriptor file_;
  bool ours_ = false;  // the temporary exists and must be removed
};

// Writes a whole text in this way.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace tally

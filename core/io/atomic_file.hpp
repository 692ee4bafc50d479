// Writing a file so that, whatever happens, either the old or the new content is there whole: a temporary file in the
// same folder, write, fsync, rename, fsync of the folder.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tally {

// Writes the chunks one after the other. On any failure (disk full, no permission) the old file stays, the temporary is
// removed and an Error names the file and the reason. The temporary is called <path>.tmp; one that a killed process
// left behind is written over. Only a regular file is ever replaced; through a link, the file that it names.
void write_file_atomically(const std::string& path, std::span<const std::span<const std::byte>> chunks);
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace tally

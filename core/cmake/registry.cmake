# Encodings, optimisers and tasks are found by file name: a new file in the folder is all it takes. A static object that
# registers itself would be dropped by the linker from a static library, so the list is written here and the files are
# reached through it. CONFIGURE_DEPENDS makes the next build notice a new file.
#
# tally_registry(<out-var> KIND encoding ENTRY EncodingEntry HEADER nn/encoding/encoding.hpp FILES nn/position/rope.cpp ...)
#
# writes <build>/generated/encoding_registry.cpp, which defines tally::encoding_registry() over the functions
# tally::registry::encoding_rope(), ... that the closing lines of the files define, sorted by file name. Appends the path
# to <out-var>. A file name that is no identifier, or a closing line with another name, is an error.
function(tally_registry out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "KIND;ENTRY;HEADER" "FILES")
  list(SORT arg_FILES COMPARE FILE_BASENAME)
  set(declarations "")
  set(entries "")
  foreach(file IN LISTS arg_FILES)
    get_filename_component(stem ${file} NAME_WE)
    if(NOT stem MATCHES "^[a-z][a-z0-9_]*$")
      string(TOLOWER ${stem} good)
      string(REGEX REPLACE "[^a-z0-9]+" "_" good ${good})
      message(FATAL_ERROR "${file}: the name of such a file has lower-case letters, digits and '_' only; call it ${good}.cpp. "
        "The program writes '-' for '_'.")
    endif()
    string(TOUPPER TALLY_${arg_KIND} macro)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    if(NOT text MATCHES "\n${macro}\\([ \n]*([A-Za-z0-9_]+)")
      message(FATAL_ERROR "${file}: the closing line ${macro}(${stem}, ...) is missing.")
    elseif(NOT CMAKE_MATCH_1 STREQUAL stem)
      message(FATAL_ERROR "${file}: the closing line names '${CMAKE_MATCH_1}', but the file is '${stem}'; write ${macro}(${stem}, ...) "
        "or rename the file.")
    endif()
    string(APPEND declarations "const ${arg_ENTRY}& ${arg_KIND}_${stem}();\n")
    string(APPEND entries "      &registry::${arg_KIND}_${stem}(),\n")
  endforeach()
  list(LENGTH arg_FILES count)
  set(path ${PROJECT_BINARY_DIR}/generated/${arg_KIND}_registry.cpp)
  # Does not touch the file if its content is unchanged.
  file(CONFIGURE OUTPUT ${path} @ONLY CONTENT [[
// Written by CMake from the names of the files; do not edit.
#include <array>
#include <span>

#include "@arg_HEADER@"

namespace tally {

namespace registry {
@declarations@}  // namespace registry

std::span<const @arg_ENTRY@* const> @arg_KIND@_registry() {
  static const std::array<const @arg_ENTRY@*, @count@> entries{
@entries@  };
  return entries;
}

}  // namespace tally
]])
  set(${out} ${${out}} ${path} PARENT_SCOPE)
endfunction()

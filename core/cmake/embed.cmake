# Text files that are embedded in a program as strings and looked up by file name.
#
# tally_embed(<out-var> FUNCTION page_source HEADER tasks/print/page.hpp FILES tasks/pages/style.css ...)
#
# writes <build>/generated/page_source.cpp, which defines std::string_view tally::page_source(std::string_view name),
# empty for an unknown name; it is written again whenever a file has changed. Appends the path to <out-var>.
function(tally_embed out)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FUNCTION;HEADER" "FILES")
  set(path ${PROJECT_BINARY_DIR}/generated/${arg_FUNCTION}.cpp)
  set(script ${PROJECT_SOURCE_DIR}/core/cmake/embed.cmake)
  string(JOIN "," files ${arg_FILES})
  add_custom_command(OUTPUT ${path} DEPENDS ${arg_FILES} ${script} COMMENT "" VERBATIM
    COMMAND ${CMAKE_COMMAND} -D FUNCTION=${arg_FUNCTION} -D HEADER=${arg_HEADER} -D FILES=${files} -D OUT=${path} -P ${script})
  set(${out} ${${out}} ${path} PARENT_SCOPE)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

# Script mode: writes the file. Text is split into several raw strings, because compilers limit the length of one.
string(REPLACE "," ";" files "${FILES}")
set(entries "")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(REPLACE "\n" "\n)_text_\"\nR\"_text_(" text "${text}")  # one literal per line
  string(APPEND entries "      {\"${name}\",\nR\"_text_(${text})_text_\"},\n")
endforeach()
file(WRITE ${OUT} "// Written by the build from the files that it names; do not edit.
#include \"${HEADER}\"

#include <array>
#include <string_view>
#include <utility>

namespace tally {

std::string_view ${FUNCTION}(std::string_view name) {
  static constexpr auto files = std::to_array<std::pair<std::string_view, std::string_view>>({
${entries}  });
  for (const auto& [known, text] : files) {
    if (known == name) return text;
  }
  return {};
}

}  // namespace tally
")

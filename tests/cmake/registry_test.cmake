# A wrong file name, a wrong closing line, and mistakes in a score modification that compilers explain badly: each is
# refused by its sentence when the build is configured.
# cmake -D WORK=<folder> -P registry_test.cmake
get_filename_component(source ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/CMakeLists.txt "cmake_minimum_required(VERSION 3.20)
project(refused NONE)
include(${source}/core/cmake/registry.cmake)
include(${source}/core/cmake/score_mods.cmake)
add_library(mods INTERFACE)
tally_registry(sources KIND encoding ENTRY EncodingEntry HEADER encoding.hpp FILES \${FILE})
tally_score_mods(mods FILES \${FILE})
")

# expect(<file name> <its text> <part of the error; empty: it is accepted>)
function(expect name text error)
  file(WRITE ${WORK}/${name} "${text}")
  execute_process(COMMAND ${CMAKE_COMMAND} -B ${WORK}/build -S ${WORK} -D FILE=${WORK}/${name}
    OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE status)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  string(FIND "${said}" "${error}" found)
  if((error STREQUAL "" AND NOT status EQUAL 0) OR (NOT error STREQUAL "" AND (status EQUAL 0 OR found EQUAL -1)))
    message(SEND_ERROR "${name}: wanted '${error}', got '${said}'")
  endif()
endfunction()

set(line "\nTALLY_ENCODING(\n    mine, Options, Mine)\;\n")
expect(mine.cpp "${line}" "")
expect(My-Idea.cpp "${line}" "has lower-case letters, digits and '_' only; call it my_idea.cpp.")
expect(other.cpp "${line}" "names 'mine', but the file is 'other'; write TALLY_ENCODING(other, ...) or rename the file.")
expect(mine.cpp "// unfinished\n" "the closing line TALLY_ENCODING(mine, ...) is missing.")
set(end "TALLY_SCORE_MOD(mine, Mine)\;\n#ifndef TALLY_SCORE_MOD_ONLY\nauto host() { return std::exp(1.0)\; }\n${line}#endif\n")
set(logit "constexpr auto logit(const auto& p) { return")
expect(mine.cpp "// std::exp(x)\nstruct Mine {\n  static ${logit} p.s\; }\n}\;\n${end}" "")
expect(mine.cpp "struct Mine {\n  static ${logit} std::exp(p.s)\; }\n}\;\n${end}"
  "a score modification calls exp(...), not std::exp(...)")
expect(mine.cpp "inline auto twice(const auto& x) { return x * 2\; }\nstruct Mine {\n  static ${logit} twice(p.s)\; }\n}\;\n${end}"
  "'twice' must be constexpr")

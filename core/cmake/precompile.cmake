# The standard library's headers are a fifth to a third of the compile time of most files, more with GoogleTest: g++
# precompiles them. Files still include what they use; clang builds do not precompile, and so detect a missing include.
option(TALLY_PRECOMPILE "Compile the standard library's headers once (with g++)" ON)

set(TALLY_STANDARD_HEADERS <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <limits> <map> <memory> <optional>
    <set> <span> <string> <string_view> <utility> <vector>)

# tally_precompiled(<name> LINK <libraries> OPTIONS <options> HEADERS <extra headers>): the precompiled headers that
# tally_precompile() gives to targets with the same options. With -fPIE in OPTIONS they are for programs, otherwise for
# libraries.
function(tally_precompiled name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;OPTIONS;HEADERS")
  if(NOT TALLY_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR TALLY_SANITIZE)
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/generated/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Written by CMake, for its precompiled headers alone.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE ${arg_LINK} tally_flags tally_warnings)
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  if("-fPIE" IN_LIST arg_OPTIONS)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  endif()
  target_precompile_headers(${name} PRIVATE ${TALLY_STANDARD_HEADERS} ${arg_HEADERS})
  # Needed by ccache, which reads the preprocessed text.
  target_compile_options(${name} PRIVATE -fpch-preprocess)
endfunction()

# tally_precompile(<target> <name>): the target's sources use these precompiled headers; does nothing if they do not
# exist.
function(tally_precompile target name)
  if(TARGET ${name})
    target_precompile_headers(${target} REUSE_FROM ${name})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endfunction()

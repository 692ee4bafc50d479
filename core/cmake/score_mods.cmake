# Score modifications (core/attention/score_mod.hpp) are compiled several times from the same text: by their own file
# with vectors that any processor has; for wider vectors if g++ compiles for x86-64; and as CUDA, executed on the CPU (if
# TALLY_CUDA_HOST is ON) and, if nvcc is found, by a GPU. A file has score modifications if one of its lines begins with
# TALLY_SCORE_MOD(.
#
# tally_score_mods(<target> FILES nn/position/tra.cpp ... EVERY_FORM <some of FILES>)
#
# EVERY_FORM: files whose score modifications the host execution compiles for every precision and head width
# (cuda/attention/device.hpp).
#
# Writes the sources to <build>/generated/score_mods and adds them to the target. The function is installed with the package,
# for programs that use find_package(tally). TALLY_INCLUDE: the folder of the installed headers, if tally is installed.
function(tally_score_mods target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FILES;EVERY_FORM")
  set(folder ${PROJECT_BINARY_DIR}/generated/score_mods/${target})
  set(sets "")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT TALLY_SANITIZE)
    set(sets v4 v3)
  endif()
  set(bytes_v4 64)
  set(bytes_v3 32)
  set(sources "")
  set(host_kernels "")
  set(gpu_kernels "")
  set(own_files "")
  set(every_form "")
  foreach(file IN LISTS arg_EVERY_FORM)
    get_filename_component(stem ${file} NAME_WE)
    list(APPEND every_form ${stem})
  endforeach()
  foreach(file IN LISTS arg_FILES)
    # Reconfigures when the file changes: one may have been added or removed.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} score_mods REGEX "^TALLY_SCORE_MOD\\(")
    if(NOT score_mods)
      continue()
    endif()
    get_filename_component(file ${file} ABSOLUTE)
    get_filename_component(stem ${file} NAME_WE)
    # Mistakes that the compilers explain badly, or only nvcc finds.
    file(READ ${file} text)
    string(REGEX REPLACE "\n(TALLY_SCORE_MOD\\(|#ifndef TALLY_SCORE_MOD_ONLY).*" "" text "${text}")
    string(REGEX REPLACE "//[^\n]*" "" text "${text}")
    if(text MATCHES "std::(abs|exp|log|sqrt|sin|cos|tanh|min|max|pow)\\(")
      message(FATAL_ERROR "${file}: a score modification calls ${CMAKE_MATCH_1}(...), not std::${CMAKE_MATCH_1}(...): it is compiled for "
        "vectors, CUDA and tensors. nn/position/contextual.md lists the functions it may call.")
    endif()
    if(text MATCHES "(^|\n) *((static|inline) +)*auto +([a-z_0-9]+)\\(")
      message(FATAL_ERROR "${file}: '${CMAKE_MATCH_4}' must be constexpr, since CUDA kernels call no other functions.")
    endif()
    foreach(set IN LISTS sets)
      set(path ${folder}/${stem}_${set}.cpp)
      set(bytes ${bytes_${set}})
      file(CONFIGURE OUTPUT ${path} @ONLY CONTENT [[
// Written by CMake; do not edit. What may be seen outside of this file is compiled for any processor: the headers before
// the target.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/attention/problem.hpp"
#include "core/cpu/attention/tile.hpp"

#pragma GCC target("arch=x86-64-@set@,prefer-vector-width=512")
#include "core/cpu/attention/score_mod_loops.hpp"

#define TALLY_SCORE_MOD_ONLY
#define TALLY_SCORE_MOD_AGAIN(stem, Mod) \
  namespace tally::cpu::@set@ { \
  extern const ScoreModLoops score_mod_##stem; \
  constinit const ScoreModLoops score_mod_##stem = score_mod_loops<@bytes@, Mod>(); \
  } \
  static_assert(true)
#include "@file@"
]])
      list(APPEND sources ${path})
    endforeach()
    # Written twice, because the language is a property of the file.
    foreach(kind IN ITEMS host gpu)
      set(path ${folder}/${stem}_${kind}.cu)
      file(CONFIGURE OUTPUT ${path} @ONLY CONTENT [[
// Written by CMake; do not edit.
#include "cuda/attention/score_mod.hpp"

#define TALLY_SCORE_MOD_ONLY
#define TALLY_SCORE_MOD_AGAIN(stem, Mod) \
  namespace tally::TALLY_CUDA_NAMESPACE::registry { \
  extern const ScoreModKernels score_mod_##stem; \
  constinit const ScoreModKernels score_mod_##stem = attention_kernels::score_mod_kernels<Mod>(); \
  } \
  static_assert(true)
#include "@file@"
]])
      list(APPEND ${kind}_kernels ${path})
    endforeach()
    list(APPEND own_files ${file})
    if(stem IN_LIST every_form AND NOT TALLY_SANITIZE)
      set_property(SOURCE ${folder}/${stem}_host.cu APPEND PROPERTY COMPILE_DEFINITIONS TALLY_EVERY_FORM=1)
    endif()
    if(TALLY_CUDA_HOST)
      set_property(SOURCE ${file} APPEND PROPERTY COMPILE_DEFINITIONS TALLY_WITH_CUDA_HOST=1)
    endif()
    if(sets)
      set_property(SOURCE ${file} APPEND PROPERTY COMPILE_DEFINITIONS TALLY_SCORE_MOD_SETS=1)
    endif()
    if(TALLY_WITH_CUDA)
      set_property(SOURCE ${file} APPEND PROPERTY COMPILE_DEFINITIONS TALLY_WITH_CUDA=1)
    endif()
  endforeach()
  if(NOT TALLY_CUDA_HOST)
    set(host_kernels "")
  endif()
  set_source_files_properties(${host_kernels} PROPERTIES LANGUAGE CXX)
  set_source_files_properties(${sources} ${host_kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set_property(SOURCE ${host_kernels} APPEND PROPERTY COMPILE_OPTIONS -O1)
  set_property(SOURCE ${own_files} ${sources} ${host_kernels} APPEND PROPERTY COMPILE_OPTIONS ${TALLY_FIRST_ERROR})
  if(NOT TARGET tally_flags)  # in a program that uses an installed tally
    set_property(SOURCE ${own_files} ${sources} ${host_kernels} APPEND PROPERTY COMPILE_OPTIONS ${TALLY_NUMBER_FLAGS})
  endif()
  target_sources(${target} PRIVATE ${sources} ${host_kernels})
  target_include_directories(${target} PRIVATE ${TALLY_INCLUDE})
  if(TALLY_WITH_CUDA AND gpu_kernels)
    if(NOT CMAKE_CUDA_COMPILER)
      message(FATAL_ERROR "tally was built with CUDA, and ${target} has score modifications: call enable_language(CUDA) before tally_score_mods")
    endif()
    add_library(${target}_gpu OBJECT ${gpu_kernels})
    set_property(TARGET ${target}_gpu PROPERTY JOB_POOL_COMPILE nvcc)
    target_include_directories(${target}_gpu PRIVATE $<TARGET_PROPERTY:tally::core,INTERFACE_INCLUDE_DIRECTORIES>
                               ${TALLY_INCLUDE})
    target_link_libraries(${target}_gpu PRIVATE CUDA::cudart_static)
    target_compile_options(${target}_gpu PRIVATE --expt-relaxed-constexpr -ftz=true -Werror=cross-execution-space-call
                           -Xcompiler=-Wall,-Wextra)
    target_compile_definitions(${target}_gpu PRIVATE TALLY_EVERY_FORM=1)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_gpu>)
  endif()
endfunction()

# A score modification is compiled for many types, and each would repeat the same error: compilation stops at the first.
set(TALLY_FIRST_ERROR "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(TALLY_FIRST_ERROR -fmax-errors=1)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(TALLY_FIRST_ERROR -ferror-limit=1)
endif()

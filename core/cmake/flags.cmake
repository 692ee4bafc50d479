# Compiler flags as two INTERFACE targets: tally_flags (how the numbers are computed, sanitizers) and tally_warnings.
# Both stay inside this build: an installed tally imposes nothing on the programs that link it.

add_library(tally_flags INTERFACE)
# A fixed -ffp-contract and no -ffast-math: the bits of a result depend only on the source, never on how an optimiser
# reorders it.
set(TALLY_NUMBER_FLAGS -ffp-contract=fast -fno-math-errno -fno-trapping-math)
target_compile_options(tally_flags INTERFACE ${TALLY_NUMBER_FLAGS})

if(TALLY_SANITIZE STREQUAL "address")
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(TALLY_SANITIZE STREQUAL "thread")
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TALLY_SANITIZE=thread needs clang and libomp: ThreadSanitizer cannot see the barriers of g++'s "
                        "libgomp and reports races that are none. Use the preset 'tsan' or CXX=clang++.")
  endif()
  set(sanitizers -fsanitize=thread)
elseif(TALLY_SANITIZE)
  message(FATAL_ERROR "TALLY_SANITIZE must be address, thread or empty, not '${TALLY_SANITIZE}'")
endif()
if(TALLY_SANITIZE)
  # -g1: line numbers for the reports; these builds are not for debuggers, and full -g takes a fifth longer.
  target_compile_options(tally_flags INTERFACE ${sanitizers} -fno-omit-frame-pointer -g1)
  target_compile_definitions(tally_flags INTERFACE TALLY_SANITIZED=1)
  target_link_options(tally_flags INTERFACE ${sanitizers})
endif()
# Fuzzers are built with AddressSanitizer, by clang only.
if(TALLY_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(TALLY_FUZZERS ON)
endif()
# tally_coverage(<library>): instruments it, so that a fuzzer sees which branches an input takes.
function(tally_coverage library)
  if(TALLY_FUZZERS)
    target_compile_options(${library} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

add_library(tally_warnings INTERFACE)
target_compile_options(tally_warnings INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion
                                                $<$<BOOL:${TALLY_WERROR}>:-Werror>)
# In a unity build, clang also warns about a local name that shadows a constant of another file. tests/tidy.py compiles
# each file separately, with this warning.
if(NOT (TALLY_UNITY AND CMAKE_CXX_COMPILER_ID MATCHES "Clang"))
  target_compile_options(tally_warnings INTERFACE -Wshadow)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Warns of "text" + std::string inside its own library (gcc bug 105651).
  target_compile_options(tally_warnings INTERFACE -Wno-restrict)
endif()
# `#pragma omp simd` allows vector code; clang warns where it makes none (calls into libm).
target_compile_options(tally_warnings INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)

# Compiles through ccache if it is installed. Paths below the source folder are hashed relative to it, and debug information
# may name another folder: other copies of the tree share the cache. CMAKE_CXX_COMPILER_LAUNCHER, if set,
# takes precedence; an empty one turns ccache off.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TALLY_CCACHE ccache DOC "Compiler cache")
  if(TALLY_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER /usr/bin/env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${TALLY_CCACHE})  # sloppiness: for precompiled headers
  endif()
endif()

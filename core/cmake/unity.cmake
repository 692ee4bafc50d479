# tally_unity(<target> <n>): compiles its sources n at a time, so that headers are parsed once for n files. CMake leaves out
# files with compile options or definitions of their own. Large n: a build from nothing is faster; small n: a build after
# a change of one file is. TALLY_UNITY=OFF: every file separately, for clang-tidy.
function(tally_unity target n)
  if(TALLY_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${n})
    # g++ treats the included sources as headers, and warns about types in their unnamed namespaces.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# NCCL is looked for in the toolkit, then in the Python index's folder. cmake -D PYTHON=<python3> -D WORK=<folder>
# -P nccl_test.cmake
file(REMOVE_RECURSE ${WORK})
set(site ${WORK}/site/nvidia/nccl)
file(WRITE ${site}/include/nccl.h "")
file(WRITE ${site}/lib/libnccl.so.2 "")
file(WRITE ${WORK}/toolkit/include/nccl.h "")
file(WRITE ${WORK}/toolkit/lib/libnccl.so "")

# Ignore the NCCL of this machine.
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH FALSE)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH FALSE)
set(CMAKE_FIND_USE_CMAKE_ENVIRONMENT_PATH FALSE)
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
set(TALLY_NCCL_PYTHON ${PYTHON} CACHE FILEPATH "")

# expect(<site-packages> <toolkit> <folder of the header> <library>): names of folders of WORK, or none.
function(expect packages toolkit header library)
  unset(TALLY_NCCL_INCLUDE CACHE)
  unset(TALLY_NCCL_LIBRARY CACHE)
  set(ENV{PYTHONPATH} ${WORK}/${packages})
  set(CUDAToolkit_INCLUDE_DIRS ${WORK}/${toolkit}/include)
  set(CUDAToolkit_LIBRARY_DIR ${WORK}/${toolkit}/lib)
  include(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../../core/cmake/nccl.cmake)
  string(REPLACE "${WORK}/" "" found "${TALLY_NCCL_INCLUDE} ${TALLY_NCCL_LIBRARY}")
  if(NOT found STREQUAL "${header} ${library}")
    message(SEND_ERROR "with site-packages '${packages}' and toolkit '${toolkit}': ${found}")
  endif()
endfunction()
expect(none none TALLY_NCCL_INCLUDE-NOTFOUND TALLY_NCCL_LIBRARY-NOTFOUND)
expect(site none site/nvidia/nccl/include site/nvidia/nccl/lib/libnccl.so.2)
expect(none toolkit toolkit/include toolkit/lib/libnccl.so)
expect(site toolkit toolkit/include toolkit/lib/libnccl.so)
# A toolkit with only the library: header and library come from one place.
file(REMOVE ${WORK}/toolkit/include/nccl.h)
expect(site toolkit site/nvidia/nccl/include site/nvidia/nccl/lib/libnccl.so.2)

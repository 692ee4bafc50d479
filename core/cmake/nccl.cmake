# NCCL, by which the ranks of a run on GPUs exchange gradients: the folder of its header as TALLY_NCCL_INCLUDE and its
# library as TALLY_NCCL_LIBRARY, both -NOTFOUND where they are not there. That of the toolkit or the system comes first, then
# that of the Python index (nvidia-nccl-cu12 or -cu13), which lies in nvidia/nccl of a site-packages: that of
# TALLY_NCCL_PYTHON. It has libnccl.so.2 alone, without the name that linkers look for.
find_program(TALLY_NCCL_PYTHON python3 DOC "Python whose site-packages may hold NCCL")
set(nccl_of_python "")
if(TALLY_NCCL_PYTHON)
  execute_process(COMMAND ${TALLY_NCCL_PYTHON} -c
      "import importlib.util as u; print(u.find_spec('nvidia.nccl').submodule_search_locations[0])"
    OUTPUT_VARIABLE nccl_of_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(folders_include "")
set(folders_lib "")
if(nccl_of_python)
  set(folders_include PATHS ${nccl_of_python}/include)
  set(folders_lib PATHS ${nccl_of_python}/lib)
endif()
find_path(TALLY_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${folders_include} DOC "Folder of NCCL's header")
if(nccl_of_python AND TALLY_NCCL_INCLUDE STREQUAL "${nccl_of_python}/include")  # both of one place
  find_library(TALLY_NCCL_LIBRARY NAMES nccl libnccl.so.2 PATHS ${nccl_of_python}/lib NO_DEFAULT_PATH DOC "NCCL")
endif()
find_library(TALLY_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ${folders_lib} DOC "NCCL")
if(NOT TALLY_NCCL_INCLUDE)
  message(STATUS "CUDA backend: without NCCL: nccl.h was not found (libnccl-dev, or nvidia-nccl-cu12 of the Python index)")
elseif(TALLY_NCCL_LIBRARY)
  message(STATUS "CUDA backend: NCCL of ${TALLY_NCCL_INCLUDE}, loaded from ${TALLY_NCCL_LIBRARY}")
else()
  message(STATUS "CUDA backend: NCCL of ${TALLY_NCCL_INCLUDE}; no library was found, and libnccl.so is looked for by the program")
endif()

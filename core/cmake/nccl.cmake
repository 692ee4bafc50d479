# NCCL, with which GPU processes all-reduce gradients. Sets TALLY_NCCL_INCLUDE (folder of the header) and
# TALLY_NCCL_LIBRARY; both are -NOTFOUND if NCCL is missing. The toolkit and the system are searched first. Then comes
# the Python package (nvidia-nccl-cu12 or -cu13), found in nvidia/nccl of the site-packages of TALLY_NCCL_PYTHON. The
# package has only libnccl.so.2, without the name that linkers look for.
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
if(nccl_of_python AND TALLY_NCCL_INCLUDE STREQUAL "${nccl_of_python}/include")  # both from one place
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

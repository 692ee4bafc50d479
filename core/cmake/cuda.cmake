# The CUDA kernels, twice (cuda/README.md): tally_cuda(tally_core) adds to a library
#  * unless TALLY_CUDA_HOST is OFF, the sources of cuda/ as C++, against cuda/emulator, which executes them on the CPU;
#  * if nvcc is found, the same sources as CUDA, compiled in cuda/CMakeLists.txt, because CMake sets the language of a
#    file per folder.

set(TALLY_WITH_CUDA OFF)
if(NOT TALLY_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_text ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" nvcc_release "${nvcc_text}")
    set(nvcc_version "${CMAKE_MATCH_1}")
  endif()
  if(TALLY_SANITIZE)
    set(obstacle "TALLY_SANITIZE is set, and the sanitizers do not know code for a GPU")
  elseif(NOT CMAKE_CUDA_COMPILER)
    set(obstacle "nvcc was not found; put it on the path, or set CUDACXX to it")
  elseif(nvcc_version VERSION_LESS 12)
    set(obstacle "${CMAKE_CUDA_COMPILER} is of CUDA '${nvcc_version}', and C++20 needs 12.0 or newer; set CUDACXX to it")
  else()
    set(TALLY_WITH_CUDA ON)
  endif()
  if(obstacle AND TALLY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TALLY_CUDA=ON: ${obstacle}")
  elseif(obstacle)
    message(STATUS "CUDA backend: not built: ${obstacle}. The kernels are built for the CPU only (cuda-host).")
  endif()
endif()

if(TALLY_WITH_CUDA)
  # As many processes of nvcc as the memory has 4 GiB: each takes a gigabyte and more.
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)
  math(EXPR processes "${memory} / 4096 + 1")
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS nvcc=${processes})
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Machine code for all three, and PTX of 9.0 for others. Without 12.0 an RTX 50 would compile for minutes at its
    # first launch.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90 120-real)
  endif()
  if(NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG -lineinfo")  # profilers name lines; the code is the same
  set(CMAKE_CUDA_FLAGS_DEBUG "-O1 -g -lineinfo")
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know nvcc's option for C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  # All architectures that this nvcc supports, from 7.5 on.
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE nvcc_architectures)
  string(REGEX MATCHALL "compute_(7[5-9]|[89][0-9]|1[0-9][0-9])" nvcc_architectures "${nvcc_architectures}")
  list(TRANSFORM nvcc_architectures REPLACE "compute_(.*)" "\\1-real")
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "CUDA backend: built by nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
endif()

function(tally_cuda library)
  if(TALLY_CUDA_HOST)
    file(GLOB kernels CONFIGURE_DEPENDS cuda/*.cu cuda/*/*.cu)
    file(GLOB runtime CONFIGURE_DEPENDS cuda/emulator/*.cpp)
    target_sources(${library} PRIVATE ${kernels} ${runtime})
    set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
    # These kernels run thread by thread and do not vectorise, and -O3 would double the compile time.
    set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
    if(TALLY_SANITIZE STREQUAL "thread")
      # The code that switches fibers is not checked by the sanitizer: see cuda/emulator/sanitizer.hpp.
      set_source_files_properties(${runtime} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread
        COMPILE_DEFINITIONS TALLY_THREAD_SANITIZER=1)
    endif()
    set_property(SOURCE core/device/backend.cpp APPEND PROPERTY COMPILE_DEFINITIONS TALLY_WITH_CUDA_HOST=1)
  endif()
  if(TALLY_WITH_CUDA)
    add_subdirectory(cuda)
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:tally_cuda>)
    target_link_libraries(${library} PRIVATE CUDA::cudart_static)
    set_property(SOURCE core/device/backend.cpp APPEND PROPERTY COMPILE_DEFINITIONS TALLY_WITH_CUDA=1)
  endif()
endfunction()

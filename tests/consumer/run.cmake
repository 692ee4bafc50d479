# Installs the build tree to an empty folder, then configures, builds and runs tests/consumer against it.
#
# cmake -D BUILD=<build tree> -D SOURCE=<tests/consumer> -D COMPILER=<c++> -D GENERATOR=<name> -D WORK=<folder to use>
#       -P run.cmake
file(REMOVE_RECURSE ${WORK})
foreach(step IN ITEMS
    "${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix"
    "${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH=${WORK}/prefix"
    "${CMAKE_COMMAND} --build ${WORK}/build"
    "${WORK}/build/consumer")
  separate_arguments(command UNIX_COMMAND "${step}")
  execute_process(COMMAND ${command} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${step}")
  endif()
endforeach()

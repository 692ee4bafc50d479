# Installs the build tree to an empty folder, then configures, builds and runs tests/consumer against it.
#
# cmake -D BUILD=<build tree> -D SOURCE=<tests/consumer> -D COMPILER=<c++> -D GENERATOR=<name> -D WORK=<folder to use>
#       -P run.cmake
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed (${status}): ${command}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
foreach(script IN ITEMS tally.py examples/last_x.py)
  if(NOT EXISTS ${WORK}/prefix/share/tally/${script})
    message(FATAL_ERROR "not installed: share/tally/${script}")
  endif()
endforeach()
step(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -D CMAKE_BUILD_TYPE=Release
     -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${WORK}/prefix
     -D OWN_ENCODING=${SOURCE}/../own_encoding/counted_decay.cpp)
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/consumer)
step(${WORK}/build/own_score_mod)

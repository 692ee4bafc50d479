# Installs the build tree to an empty folder, then configures, builds and runs tasks/library/example and tests/consumer against it,
# and the example once more by pkg-config.
#
# cmake -D BUILD=<build tree> -D SOURCE=<tests/consumer> -D EXAMPLE=<tasks/library/example> -D COMPILER=<c++> -D GENERATOR=<name>
#       -D WORK=<folder to use> -P run.cmake
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
step(${CMAKE_COMMAND} -S ${EXAMPLE} -B ${WORK}/example -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
     -D CMAKE_PREFIX_PATH=${WORK}/prefix)
step(${CMAKE_COMMAND} --build ${WORK}/example)
foreach(program IN ITEMS xor adder transformer)
  step(${CMAKE_COMMAND} -E chdir ${WORK}/example ./${program})
endforeach()

find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  file(GLOB_RECURSE package ${WORK}/prefix/*/tally.pc)
  execute_process(COMMAND ${PKG_CONFIG} --cflags --libs ${package} OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  step(${COMPILER} ${EXAMPLE}/adder.cpp -o ${WORK}/adder ${flags})
  step(${CMAKE_COMMAND} -E chdir ${WORK} ./adder)
endif()

step(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -D CMAKE_BUILD_TYPE=Release
     -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${WORK}/prefix
     -D OWN_ENCODING=${SOURCE}/../own_encoding/counted_decay.cpp)
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/own_score_mod)

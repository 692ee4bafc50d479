# Runs after a test executable is linked: asks it for its test suites and writes one ctest test for each, so that ctest
# shares them out over the cores without starting thousands of processes. A suite whose name ends in "Slow" gets the
# label slow, which --quick and the sanitizers leave out. Whole models on cuda-host, benches, and runs that are compared
# between devices or with other programs, or shared by processes, get the label long, which --quick leaves out. So do
# tests of the encodings of this repository that custom encodings skip (Repository). Suites that loop over encodings and
# can be restricted by TALLY_TEST_ENCODING get the label encodings (tests/run.sh --encoding). A suite whose tests are
# all skipped (tests/main.cpp) counts as skipped, never as passed.
#
# cmake -D EXECUTABLE=<path> -D FOLDER=core -D SCRIPT=<file to write> -D ENVIRONMENT=<A=1;B=2> -P discover_suites.cmake
execute_process(COMMAND ${CMAKE_COMMAND} -E env ${ENVIRONMENT} ${EXECUTABLE} --gtest_list_tests
  OUTPUT_VARIABLE listing RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${EXECUTABLE} --gtest_list_tests failed: ${status}")
endif()

# A suite is a line that does not begin with a blank: "Softmax.", "All/Encoding.", "Kernel/0.  # TypeParam = float".
string(REGEX MATCHALL "(^|\n)[A-Za-z_][A-Za-z0-9_/]*\\." suites "${listing}")
# TALLY_TEST_EVERYTHING=1 (tests/full.sh) runs all cases of a suite, under the sanitizers for hours.
set(content "set(limit 1200)\nif(DEFINED ENV{TALLY_TEST_EVERYTHING})\n  set(limit 21600)\nendif()\n")
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "[\n.]" "" suite "${suite}")
  set(labels ${FOLDER})
  if(suite MATCHES "Slow$")
    list(APPEND labels slow)
  elseif("${FOLDER}/${suite}" MATCHES "^(nn|tasks)/CudaHost/|^runner/(Bench$|Devices$|(.*/)?RanksOfMpi[A-Za-z]*$|.*/Outside[A-Za-z]*$)|/Repository$")
    list(APPEND labels long)
  endif()
  if("${FOLDER}/${suite}" MATCHES "^nn/(.*/)?(Encodings|Forms|Generation|KeyHeads|Published|Reference)$")
    list(APPEND labels encodings)
  endif()
  # There is one GPU, and its memory is measured: one at a time.
  set(lock "")
  if(suite MATCHES "^Cuda/")
    set(lock " RESOURCE_LOCK gpu")
  endif()
  string(APPEND content
    "add_test([==[${FOLDER}/${suite}]==] [==[${EXECUTABLE}]==] [==[--gtest_filter=${suite}.*]==] --gtest_brief=1)\n"
    "set_tests_properties([==[${FOLDER}/${suite}]==] PROPERTIES LABELS [==[${labels}]==] TIMEOUT \${limit} SKIP_RETURN_CODE 77 "
    "ENVIRONMENT [==[${ENVIRONMENT}]==]${lock})\n")
endforeach()
if(NOT suites)
  message(FATAL_ERROR "${EXECUTABLE} holds no test")
endif()
file(WRITE ${SCRIPT} "${content}")

# A suite whose tests are all skipped is skipped for ctest, and one that fails is not.
# cmake -D PROGRAM=<skipped.cpp's> -D WORK=<folder> -P skipped_test.cmake
file(MAKE_DIRECTORY ${WORK})
set(EXECUTABLE ${PROGRAM})
set(FOLDER cmake)
set(SCRIPT ${WORK}/CTestTestfile.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/discover_suites.cmake)
get_filename_component(folder ${CMAKE_COMMAND} DIRECTORY)
execute_process(COMMAND ${folder}/ctest WORKING_DIRECTORY ${WORK} OUTPUT_VARIABLE told ERROR_VARIABLE told)
foreach(line IN ITEMS "cmake/WithoutIt [.]+\\*\\*\\*Skipped" "cmake/InPart [.]+ +Passed" "cmake/WithAFailure [.]+\\*\\*\\*Failed"
        "cmake/FailsFirst [.]+\\*\\*\\*Failed")
  if(NOT told MATCHES "${line}")
    message(SEND_ERROR "no '${line}' in\n${told}")
  endif()
endforeach()

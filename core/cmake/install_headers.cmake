# Copies the headers of TALLY_SOURCE to <prefix>/TALLY_INCLUDE, where "core/tensor.hpp" becomes "tally/core/tensor.hpp": no
# header of another library can be found instead.
set(destination $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${TALLY_INCLUDE})
foreach(folder IN ITEMS core autograd nn cuda tasks)
  file(GLOB_RECURSE headers RELATIVE ${TALLY_SOURCE} ${TALLY_SOURCE}/${folder}/*.hpp ${TALLY_SOURCE}/${folder}/*.def)
  list(FILTER headers EXCLUDE REGEX "^tasks/(command_line|commands|sweep)/")
  foreach(header IN LISTS headers)
    file(READ ${TALLY_SOURCE}/${header} text)
    string(REGEX REPLACE "(#include \")((core|autograd|nn|cuda|tasks)/)" "\\1tally/\\2" text "${text}")
    string(REGEX REPLACE "^tasks/library/tally.hpp$" "tally.hpp" header ${header})
    file(WRITE ${destination}/${header} "${text}")
  endforeach()
endforeach()

# cmake -D SOURCE=<sources> -D OUT=<file.cpp> -P commit.cmake: writes tally::commit. It does not touch the file if the
# text is unchanged, so a build after a commit compiles one small file.
set(commit "")
if(EXISTS ${SOURCE}/.git)  # a copy of the sources below another repository has none
  execute_process(COMMAND git --no-optional-locks -C ${SOURCE} describe --always --dirty --abbrev=12
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  elseif(NOT commit MATCHES "-dirty$")
    # `git describe` ignores untracked files, but the build compiles them too.
    execute_process(COMMAND git --no-optional-locks -C ${SOURCE} ls-files --others --exclude-standard --
                            core autograd nn tasks cuda CMakeLists.txt
      OUTPUT_VARIABLE unknown OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(failed OR NOT unknown STREQUAL "")
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[
// Written by each build; do not edit.
#include "tasks/runs/machine.hpp"

namespace tally {

constinit const std::string_view commit = "@commit@";

}  // namespace tally
]])

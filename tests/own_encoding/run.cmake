# Follows nn/position/README.md and tasks/add.md. It copies the sources and adds five files: the encoding and the
# optimiser of these pages, the encoding of contextual.md, and the two that 'tally new-encoding' prints. It builds the
# runner and looks for them in the list, the help, the check and a short training run. It compares the encoding of
# contextual.md with the same encoding in tensor operations.
#
# cmake -D SOURCE=<root of the sources> -D TALLY=<the program> -D COMPILER=<c++> -D GENERATOR=<name> -D WORK=<folder to
# use> -P run.cmake
set(tree ${WORK}/tally)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${tree})
foreach(part IN ITEMS core autograd nn tasks cuda CMakeLists.txt)
  file(COPY ${SOURCE}/${part} DESTINATION ${tree})
endforeach()
# add(<file> <folder> <page that shows the file as it is>)
function(add name folder page)
  file(COPY ${SOURCE}/tests/own_encoding/${name}.cpp DESTINATION ${tree}/${folder})
  file(READ ${SOURCE}/${page} shown)
  file(READ ${SOURCE}/tests/own_encoding/${name}.cpp text)
  string(FIND "${shown}" "${text}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${page} does not show tests/own_encoding/${name}.cpp as it is")
  endif()
endfunction()
add(decay nn/position nn/position/README.md)
add(counted_decay nn/position nn/position/contextual.md)
add(lion nn/optim tasks/add.md)

file(COPY ${SOURCE}/tests/own_encoding/counted_decay_in_tensors.cpp DESTINATION ${tree}/nn/position)

foreach(kind IN ITEMS hooks score)
  set(options)
  if(kind STREQUAL score)
    set(options --score-mod)
  endif()
  execute_process(COMMAND ${TALLY} new-encoding begun-by-${kind} ${options} COMMAND_ERROR_IS_FATAL ANY
                  OUTPUT_FILE ${tree}/nn/position/begun_by_${kind}.cpp)
endforeach()

# step(<text that the output must hold, ...> -- <command>)
function(step)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "HOLDS;RUN")
  execute_process(COMMAND ${arg_RUN} WORKING_DIRECTORY ${WORK} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  list(JOIN arg_RUN " " command)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${command}\n${output}")
  endif()
  foreach(text IN LISTS arg_HOLDS)
    string(FIND "${output}" "${text}" found)
    if(found EQUAL -1)
      message(FATAL_ERROR "'${text}' is not in what this printed: ${command}\n${output}")
    endif()
  endforeach()
endfunction()

# ccache has most objects: relative to the root of the tree, the commands equal the commands of this build.
set(build ${tree}/build/release)
step(RUN ${CMAKE_COMMAND} -S ${tree} -B ${build} -G ${GENERATOR} -D CMAKE_BUILD_TYPE=Release
         -D CMAKE_CXX_COMPILER=${COMPILER} -D TALLY_TESTS=OFF -D TALLY_CUDA=OFF -D TALLY_WERROR=${WERROR})
step(RUN ${CMAKE_COMMAND} --build ${build} --target tally)
set(tally ${build}/tally)

step(RUN ${tally} describe encodings HOLDS "  decay " "  counted-decay ")
step(RUN ${tally} describe decay HOLDS "l_ij = s_ij - r_h (i-j)" "start")
step(RUN ${tally} train --pe decay --help HOLDS "--pe.start=0.1" "strength r of every head at the start")
step(RUN ${tally} check --pe decay --only gradients HOLDS "these promises are kept")
foreach(encoding IN ITEMS decay counted-decay begun-by-hooks begun-by-score)
  step(RUN ${tally} check --pe ${encoding} HOLDS "cost        step " "all promises are kept")
endforeach()
step(RUN ${tally} check --pe counted-decay --against counted-decay-in-tensors
     HOLDS "counted-decay is the same function as counted-decay-in-tensors")
foreach(encoding IN ITEMS decay counted-decay)
  # More than one tile of keys.
  step(RUN ${tally} bench attention --pe ${encoding} --length 150 --batch 1 --steps 1 --json
       HOLDS "\"attention\":\"tiled\"")
endforeach()
foreach(encoding IN ITEMS decay counted-decay rope+decay cope+decay)
  step(RUN ${tally} train ${WORK}/run-${encoding} --task flip-flop --preset quick --pe ${encoding} --steps 3
           --optimiser.warmup 0 --task.length 16 --task.eval-count 8 --task.sparse-count 8 --task.dense-count 8 --threads 1)
endforeach()
step(RUN ${tally} describe ${WORK}/run-decay/checkpoints/step-00000003.safetensors
     HOLDS "model.blocks.0.position.decay.rate")

step(RUN ${tally} describe optimisers HOLDS "  lion ")
step(RUN ${tally} describe lion HOLDS "share of the mean that is kept")
step(RUN ${tally} train ${WORK}/run-lion --task flip-flop --preset quick --pe none --steps 3 --optimiser.name lion
         --optimiser.warmup 0 --task.length 16 --task.eval-count 8 --task.sparse-count 8 --task.dense-count 8 --threads 1)
step(RUN ${tally} describe ${WORK}/run-lion/checkpoints/step-00000003.safetensors HOLDS "optimiser.embedding.weight.m")

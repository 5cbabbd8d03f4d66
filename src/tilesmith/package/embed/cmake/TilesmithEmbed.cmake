# tilesmith_embed(NAME LISTS FILE... [TARGETS TARGET...] [SELECT FILE] [PACKAGES PATH...] [OPTIONS WORD...]
#                 [DESTINATION DIR])
#
# Writes the C library NAME with `tilesmith embed` when the project is configured, and adds it: link NAME::NAME.
# A list or selection that changes has the project configured again. BUILD_SHARED_LIBS says which kind is built.
# TILESMITH is the command (default: tilesmith, or else python3 -m tilesmith).
include_guard()

function(tilesmith_embed NAME)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SELECT;DESTINATION" "LISTS;TARGETS;PACKAGES;OPTIONS")
  if(DEFINED arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tilesmith_embed: ${arg_UNPARSED_ARGUMENTS} is no argument")
  endif()
  if(NOT TILESMITH)
    find_program(TILESMITH_PROGRAM tilesmith)
    set(TILESMITH ${TILESMITH_PROGRAM})
    if(NOT TILESMITH)
      set(TILESMITH python3 -m tilesmith)
    endif()
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${NAME})
  if(arg_DESTINATION)
    get_filename_component(folder ${arg_DESTINATION} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  set(words --name ${NAME} -o ${folder} --sources-only ${arg_OPTIONS})
  foreach(target ${arg_TARGETS})
    list(APPEND words --target ${target})
  endforeach()
  foreach(package ${arg_PACKAGES})
    list(APPEND words --package ${package})
  endforeach()
  if(arg_SELECT)
    list(APPEND words --select ${arg_SELECT})
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${arg_LISTS} ${arg_SELECT})
  execute_process(
    COMMAND ${TILESMITH} embed ${arg_LISTS} ${words} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    RESULT_VARIABLE status ERROR_VARIABLE messages OUTPUT_VARIABLE told)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "tilesmith embed: exit status ${status}\n${messages}")
  endif()
  message(STATUS "${told}")
  add_subdirectory(${folder} ${folder}-build)
endfunction()

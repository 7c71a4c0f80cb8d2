# SPDX-License-Identifier: Apache-2.0
#
# Writes the C file with the version, if it would change.
#   cmake -DROOT=TREE -DRELEASE=0.1.0 -DOUT=FILE -P version.cmake
cmake_minimum_required(VERSION 3.20)

# git_says(VARIABLE ARGUMENT...): what git prints, empty when it fails or is not installed. It takes
# no lock: others may be at work in the tree.
function(git_says variable)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0 git -C ${ROOT} ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(status)
    set(text "")
  endif()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# An archive that was unpacked inside somebody else's repository must not take that one's commit.
set(details "")
if(EXISTS ${ROOT}/.git)
  git_says(since describe --tags --match v${RELEASE} --long --dirty=.dirty --abbrev=12)
  if(since MATCHES "^v${RELEASE}-([0-9]+)-(g.+)$")
    if(NOT since MATCHES "-0-g[0-9a-f]+$")
      string(REGEX REPLACE "^v[^-]*-([0-9]+)-" "+\\1." details "${since}")
    endif()
  else()
    git_says(commit describe --always --exclude=* --dirty=.dirty --abbrev=12)
    if(commit)
      set(details "+g${commit}")
    endif()
  endif()
endif()

set(text "/* Written by version.cmake. */
#include \"base/version.h\"

/* After a zero: \"strings\" would take a letter that happens to lie before it for a part of it. */
static const char identity[] = \"\\0\" \"nccl-ha ${RELEASE}${details}\";
const char *const ha_version = identity + sizeof \"\\0\" \"nccl-ha \" - 1;
")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUT} "${text}")
endif()

# SPDX-License-Identifier: Apache-2.0
#
# The time that packages carry, in place of when they happened to be made: that of the commit, else of the newest
# entry in the packages' list of changes. Who sets SOURCE_DATE_EPOCH decides. Included by cpack, with the source
# tree in CPACK_HA_ROOT.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  set(epoch "")
  if(EXISTS ${CPACK_HA_ROOT}/.git)
    execute_process(COMMAND git -C ${CPACK_HA_ROOT} log -1 --format=%ct
      OUTPUT_VARIABLE epoch ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(NOT epoch MATCHES "^[0-9]+$")
    file(STRINGS ${CPACK_HA_ROOT}/scripts/packaging/changelog entry REGEX "^ -- .*>  " LIMIT_COUNT 1)
    string(REGEX REPLACE "^ -- .*>  " "" entry "${entry}")
    execute_process(COMMAND date -d "${entry}" +%s OUTPUT_VARIABLE epoch OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  if(NOT epoch MATCHES "^[0-9]+$")
    message(FATAL_ERROR "packages get the time of the commit or of the newest entry in scripts/packaging/changelog, "
      "and there is neither: set SOURCE_DATE_EPOCH")
  endif()
  set(ENV{SOURCE_DATE_EPOCH} ${epoch})
endif()

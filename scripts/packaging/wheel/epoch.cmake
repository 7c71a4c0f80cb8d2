# SPDX-License-Identifier: Apache-2.0
# Prints the time that packages carry.
include(${CMAKE_CURRENT_LIST_DIR}/../epoch.cmake)
message("$ENV{SOURCE_DATE_EPOCH}")

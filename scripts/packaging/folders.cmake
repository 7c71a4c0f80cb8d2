# SPDX-License-Identifier: Apache-2.0
#
# Folders of packages are for all, whatever the builder's mask is. Run by cpack before it packs.
execute_process(COMMAND find ${CPACK_TEMPORARY_DIRECTORY} -type d -exec chmod 0755 {} +
  COMMAND_ERROR_IS_FATAL ANY)

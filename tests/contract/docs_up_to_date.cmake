# Is PAGE what CHECK --markdown prints?
execute_process(COMMAND ${CHECK} --markdown OUTPUT_VARIABLE printed RESULT_VARIABLE status)
file(READ ${PAGE} kept)
if(status OR NOT printed STREQUAL kept)
  message(FATAL_ERROR "docs/contract.md is not what the table of rules says; make it new:\n"
    "  build/bin/nccl-net-check --markdown > docs/contract.md")
endif()

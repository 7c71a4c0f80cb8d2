# What nccl-net-check (CHECK) promises about exit status, messages and JSON, on a GOOD plugin, one
# that HANGS in test, one that CRASHES in test, one that LACKS test and one that is V8_ONLY. Of a member that is missing
# nccl-net-perf (PERF) says the same.

# expect(status regex args...)
function(expect status regex)
  execute_process(COMMAND ${CHECK} ${ARGN} RESULT_VARIABLE got OUTPUT_VARIABLE out
    ERROR_VARIABLE err TIMEOUT 40)
  if(NOT got STREQUAL status OR NOT "${out}${err}" MATCHES "${regex}")
    message(FATAL_ERROR "nccl-net-check ${ARGN}\nexit status ${got}, expected ${status}; expected "
      "to match '${regex}':\n${out}${err}")
  endif()
endfunction()

expect(0 "request-written .*stranger|stranger .*request-written" --list)
expect(0 "1 passed, 0 failed" --plugin ${GOOD} --rule data --api v10)
expect(0 "PASS +v12 .*1 passed" ${GOOD} --rule init --api newest)
expect(0 "PASS +v12 .*PASS +v8 .*5 passed" ${GOOD} --rule init)

# What cannot be checked is not a pass.
expect(2 "which plugin")
expect(2 "no plugin 'not-there'.*cannot be checked" not-there)
expect(2 "cannot load" ./not-there.so)
expect(2 "no rule 'nonsense'" ${GOOD} --rule nonsense)
expect(2 "none of v8" ${GOOD} --api v7)
expect(2 "no rule applies" ${V8_ONLY} --api v12)
expect(2 "no rule applies" ${GOOD} --api v8 --rule contexts)
expect(2 "not HxR" ${GOOD} --simverbs 2)
expect(2 "cannot write" ${GOOD} --rule init --api v8 --json /nonexistent/x.json)

# A plugin that hangs or dies costs one rule and is named with the call.
expect(1 "FAIL.*no end after 5 s; the process, in test for" ${HANGS} --api v8 --rule test-returns
  --limit 5)
expect(1 "FAIL +v8 +sizes-null .*in test for.*PASS +v8 +iflush" ${CRASHES} --api v8
  --rule sizes-null --rule iflush)

# A member that is missing once init has succeeded is named, and nothing is called.
expect(1 "FAIL +v12 +vtable .*members that are NULL after init: test" ${LACKS} --api v12 --rule vtable)
execute_process(COMMAND ${PERF} --plugin ${LACKS} --ranks 2 --op sendrecv -b 8 -e 8 RESULT_VARIABLE got
  OUTPUT_VARIABLE out ERROR_VARIABLE out TIMEOUT 40)
if(NOT got EQUAL 3 OR NOT out MATCHES "v12 of plugin .* lacks test after init")
  message(FATAL_ERROR "nccl-net-perf: exit status ${got}:\n${out}")
endif()

expect(1 "1 passed, 1 failed" ${CRASHES} --api v9 --rule sizes-null --rule iflush --json ${JSON})
file(READ ${JSON} json)
string(JSON failed GET "${json}" failed)
string(JSON count LENGTH "${json}" results)
string(JSON rule GET "${json}" results 0 rule)
string(JSON outcome GET "${json}" results 0 outcome)
string(JSON api GET "${json}" results 1 api)
file(REMOVE ${JSON})
if(NOT "${failed} ${count} ${rule} ${outcome} ${api}" STREQUAL "1 2 sizes-null FAIL 9")
  message(FATAL_ERROR "unexpected JSON:\n${json}")
endif()

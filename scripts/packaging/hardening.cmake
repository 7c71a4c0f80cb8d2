# What everything is compiled and linked with so that a mistake in it is harder to use: included before any target.
# Each flag where compiler and linker have it; and in front of CFLAGS and LDFLAGS, so that a builder's own win.
# tests/install/hardening.sh looks at what is installed.

option(HA_HARDENING "Compile and link with what makes mistakes harder to exploit" ON)

include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

# Programs are loaded anywhere, whatever the compiler's default.
check_pie_supported(LANGUAGES C)

# Sanitizers see more, and do not go together with all of it.
if(NOT HA_HARDENING OR HA_SANITIZE)
  return()
endif()

# name(FLAG) for a variable of the cache.
function(ha_flag_name flag out)
  string(MAKE_C_IDENTIFIER "HA_HAS${flag}" name)
  set(${out} ${name} PARENT_SCOPE)
endfunction()

foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
  ha_flag_name(${flag} name)
  check_c_compiler_flag("-Werror ${flag}" ${name})
  if(${name})
    list(APPEND hardening ${flag})
  endif()
endforeach()

# glibc checks sizes where the compiler knows them; 3 also knows those that are computed. Needs optimization.
# Compilers of some distributions set it themselves.
set(optimized OFF)
if("${CMAKE_BUILD_TYPE}" MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$" OR "${CMAKE_C_FLAGS}" MATCHES "-O[1-3sg]")
  set(optimized ON)
endif()
if(optimized AND NOT "${CMAKE_C_FLAGS}" MATCHES "_FORTIFY_SOURCE")
  foreach(level 3 2)
    set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level}")
    check_c_source_compiles("#include <stdlib.h>\nint main(void) { return 0; }" HA_HAS_FORTIFY_${level})
    unset(CMAKE_REQUIRED_FLAGS)
    if(HA_HAS_FORTIFY_${level})
      list(APPEND hardening -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level})
      break()
    endif()
  endforeach()
endif()

foreach(flag -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,-z,separate-code)
  ha_flag_name(${flag} name)
  check_linker_flag(C ${flag} ${name})
  if(${name})
    list(APPEND link_hardening ${flag})
  endif()
endforeach()

list(JOIN hardening " " hardening)
list(JOIN link_hardening " " link_hardening)
set(CMAKE_C_FLAGS "${hardening} ${CMAKE_C_FLAGS}")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS "${link_hardening} ${CMAKE_${kind}_LINKER_FLAGS}")
endforeach()

# SPDX-License-Identifier: Apache-2.0
#
# Writes what a package is made of (SPDX 2.3), from what its programs and libraries are linked with: shared libraries
# as readelf sees them, static ones as CMake knows them, each with the distribution's package that it came from.
#   cmake -DPACKAGE=NAME -DRELEASE=0.1.0 -DROOT=TREE -DVERSION_C=FILE -DREADELF=PROGRAM -DNM=PROGRAM -DCC=COMPILER
#     -DFILES=FILE|FILE -DARCHIVES=FILE=ARCHIVE|FILE=ARCHIVE -DOUT=FILE -P sbom.cmake
cmake_minimum_required(VERSION 3.20)

# A time that does not depend on when this runs.
set(CPACK_HA_ROOT ${ROOT})
include(${CMAKE_CURRENT_LIST_DIR}/epoch.cmake)
string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)

file(STRINGS ${VERSION_C} version REGEX "\"nccl-ha [0-9]" LIMIT_COUNT 1)
string(REGEX REPLACE ".*\"nccl-ha ([^\"]*)\".*" "\\1" version "${version}")
string(REPLACE "|" ";" FILES "${FILES}")
string(REPLACE "|" ";" ARCHIVES "${ARCHIVES}")

set(packages "")
set(relations "")
set(known "")
set(related "")

function(spdx_id name out)
  string(REGEX REPLACE "[^A-Za-z0-9.-]" "-" name "${name}")
  set(${out} "SPDXRef-${name}" PARENT_SCOPE)
endfunction()

# says(VARIABLE COMMAND...): what it prints, empty when it fails or is not installed.
function(says out)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    set(text "")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# add_package(ID NAME VERSION LICENCE PURPOSE PURL): once each.
function(add_package id name version licence purpose purl)
  if(id IN_LIST known)
    return()
  endif()
  set(more "")
  if(purl)
    set(more ",
      \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": \"${purl}\"}]")
  endif()
  string(APPEND packages ",
    {
      \"SPDXID\": \"${id}\",
      \"name\": \"${name}\",
      \"versionInfo\": \"${version}\",
      \"primaryPackagePurpose\": \"${purpose}\",
      \"downloadLocation\": \"NOASSERTION\",
      \"filesAnalyzed\": false,
      \"licenseConcluded\": \"${licence}\",
      \"licenseDeclared\": \"${licence}\",
      \"copyrightText\": \"NOASSERTION\"${more}
    }")
  set(packages "${packages}" PARENT_SCOPE)
  set(known "${known};${id}" PARENT_SCOPE)
endfunction()

# Once each: the loader comes with libc.
function(add_relation from what to)
  if("${from} ${what} ${to}" IN_LIST related)
    return()
  endif()
  set(related "${related};${from} ${what} ${to}" PARENT_SCOPE)
  string(APPEND relations ",
    {\"spdxElementId\": \"${from}\", \"relationshipType\": \"${what}\", \"relatedSpdxElement\": \"${to}\"}")
  set(relations "${relations}" PARENT_SCOPE)
endfunction()

# The distribution's package that a file came with: name, version, where to look it up.
file(STRINGS /etc/os-release distribution REGEX "^ID=")
string(REGEX REPLACE "^ID=\"?([^\"]*)\"?$" "\\1" distribution "${distribution}")
function(came_with file)
  file(REAL_PATH ${file} real)
  string(REGEX REPLACE "^/usr/" "/" short "${real}")
  get_filename_component(name ${file} NAME)
  set(version NOASSERTION)
  set(purl "")
  foreach(path ${real} ${short})
    says(owner dpkg-query -S ${path})
    if(owner MATCHES "^([^:,]+)(:[a-z0-9]+)?: ")
      set(name ${CMAKE_MATCH_1})
      says(about dpkg-query -W -f "\${Version} \${Architecture}\n" ${name}${CMAKE_MATCH_2})
      string(REGEX REPLACE "\n.*" "" about "${about}")
      string(REPLACE " " ";" about "${about}")
      list(GET about 0 version)
      list(GET about 1 arch)
      set(kind deb)
      break()
    endif()
    says(owner rpm -qf --qf "%{NAME} %{VERSION}-%{RELEASE} %{ARCH}" ${path})
    if(owner MATCHES "^([^ ]+) ([^ ]+) ([^ ]+)$")
      set(name ${CMAKE_MATCH_1})
      set(version ${CMAKE_MATCH_2})
      set(arch ${CMAKE_MATCH_3})
      set(kind rpm)
      break()
    endif()
  endforeach()
  if(DEFINED kind)
    set(encoded "${version}")
    string(REPLACE "+" "%2B" encoded "${encoded}")
    string(REPLACE ":" "%3A" encoded "${encoded}")
    string(REPLACE "+" "%2B" encoded_name "${name}")
    set(purl "pkg:${kind}/${distribution}/${encoded_name}@${encoded}?arch=${arch}")
  endif()
  set(library_name "${name}" PARENT_SCOPE)
  set(library_version "${version}" PARENT_SCOPE)
  set(library_purl "${purl}" PARENT_SCOPE)
endfunction()

# has_some_of(PROGRAM ARCHIVE VARIABLE): of a static library that nothing was taken of there is nothing in the program.
function(has_some_of program archive out)
  execute_process(COMMAND ${NM} --defined-only ${program} OUTPUT_VARIABLE have COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${NM} --defined-only -g ${archive} OUTPUT_VARIABLE offers ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL " T [A-Za-z0-9_]+" offers "${offers}")
  set(${out} OFF PARENT_SCOPE)
  foreach(symbol IN LISTS offers)
    string(REGEX REPLACE " T " "" symbol "${symbol}")
    if(have MATCHES " [Tt] ${symbol}\n")
      set(${out} ON PARENT_SCOPE)
      break()
    endif()
  endforeach()
endfunction()

# add_library_of(PROGRAM RELATION FILE)
macro(add_library_of program relation file)
  came_with(${file})
  spdx_id(${library_name} library)
  add_package(${library} ${library_name} ${library_version} NOASSERTION LIBRARY "${library_purl}")
  add_relation(${program} ${relation} ${library})
endmacro()

# An own element may have the name of its package.
spdx_id(package-${PACKAGE} package)
add_package(${package} ${PACKAGE} ${version} Apache-2.0 INSTALL "")
add_relation(SPDXRef-DOCUMENT DESCRIBES ${package})

foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  spdx_id(file-${name} program)
  set(purpose APPLICATION)
  if(name MATCHES "\\.so")
    set(purpose LIBRARY)
  endif()
  add_package(${program} ${name} ${version} Apache-2.0 ${purpose} "")
  add_relation(${package} CONTAINS ${program})
  execute_process(COMMAND ${READELF} -d ${file} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "NEEDED[^\n]*\\[[^]\n]+\\]" needed "${dynamic}")
  foreach(soname IN LISTS needed)
    string(REGEX REPLACE ".*\\[([^]]+)\\]" "\\1" soname "${soname}")
    says(path ${CC} -print-file-name=${soname})
    if(NOT IS_ABSOLUTE "${path}")
      message(FATAL_ERROR "${name} needs ${soname}, which ${CC} does not find")
    endif()
    add_library_of(${program} DYNAMIC_LINK ${path})
  endforeach()
  foreach(pair IN LISTS ARCHIVES)
    if(pair MATCHES "^([^=]+)=(.+)$" AND CMAKE_MATCH_1 STREQUAL file)
      set(archive ${CMAKE_MATCH_2})
      has_some_of(${file} ${archive} there)
      if(there)
        add_library_of(${program} STATIC_LINK ${archive})
      endif()
    endif()
  endforeach()
endforeach()

string(REGEX REPLACE "^," "" packages "${packages}")
string(REGEX REPLACE "^," "" relations "${relations}")
string(SHA256 unique "${packages}${relations}${created}")
file(WRITE ${OUT} "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"${PACKAGE}-${version}\",
  \"documentNamespace\": \"https://nccl-ha.invalid/spdx/${PACKAGE}-${version}-${unique}\",
  \"creationInfo\": {\"created\": \"${created}\", \"creators\": [\"Tool: nccl-ha-sbom.cmake\"]},
  \"packages\": [${packages}
  ],
  \"relationships\": [${relations}
  ]
}
")

# What is installed beside programs and libraries, and the packages: nccl-ha (the plugin and its
# tools, and the libraries that programs link), nccl-ha-dev (headers) and nccl-ha-simverbs (the simulated fabric). `cpack` makes them in
# packages/ of the build folder; scripts/package does all of it.

set(PACKAGING ${CMAKE_CURRENT_LIST_DIR})

# ---- dev: headers and pkg-config ----------------------------------------------------------------

install(DIRECTORY include/nccl_ha include/inccl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)

# Relative to where the file is, so that an installation can be moved.
file(RELATIVE_PATH PREFIX_FROM_PKGCONFIG
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(what nccl-ha nccl-ha-ibgda inccl)
  configure_file(${PACKAGING}/${what}.pc.in ${CMAKE_BINARY_DIR}/${what}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${what}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/docs/examples/ibgda.c ${CMAKE_SOURCE_DIR}/docs/examples/inccl.c
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/nccl-ha-dev/examples COMPONENT dev)

# ---- every package: licence and changes ---------------------------------------------------------

find_program(GZIP gzip)
set(CHANGELOG ${PACKAGING}/changelog)
if(GZIP)
  set(CHANGELOG ${CMAKE_BINARY_DIR}/changelog.gz)
  add_custom_command(OUTPUT ${CHANGELOG}
    COMMAND ${GZIP} -9nc ${PACKAGING}/changelog > ${CHANGELOG}
    DEPENDS ${PACKAGING}/changelog VERBATIM)
  add_custom_target(changelog ALL DEPENDS ${CHANGELOG})
endif()

# package(COMPONENT PACKAGE)
function(every_package component package)
  set(folder ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package})
  install(FILES ${PACKAGING}/copyright ${CHANGELOG} DESTINATION ${folder} COMPONENT ${component})
endfunction()
every_package(plugin nccl-ha)
every_package(dev nccl-ha-dev)
every_package(simverbs nccl-ha-simverbs)

# A plugin is opened by its file's name: lintian need not look for the version of a library.
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
if(DPKG_SHLIBDEPS)
  install(FILES ${PACKAGING}/lintian-overrides RENAME nccl-ha
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/lintian/overrides COMPONENT plugin)
endif()

# ---- what packages are made of ------------------------------------------------------------------

# Static libraries of others in a target.
function(linked_archives target out)
  ha_linked_libraries(${target} libraries)
  set(found "")
  foreach(library ${target} ${libraries})
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(items ${library} ${property})
      foreach(item IN LISTS items)
        if(item MATCHES "^/.*\\.a$")
          list(APPEND found ${item})
        endif()
      endforeach()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# bill_of_materials(PACKAGE COMPONENT TARGET...): as SPDX, beside the licence; without a component it is made only.
function(bill_of_materials package component)
  set(file ${CMAKE_BINARY_DIR}/${package}.spdx.json)
  set(archives "")
  set(files "")
  foreach(target IN LISTS ARGN)
    list(APPEND files $<TARGET_FILE:${target}>)
    linked_archives(${target} linked)
    foreach(archive IN LISTS linked)
      list(APPEND archives $<TARGET_FILE:${target}>=${archive})
    endforeach()
  endforeach()
  list(JOIN files "|" files)
  list(JOIN archives "|" archives)
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_COMMAND} -DPACKAGE=${package} -DRELEASE=${PROJECT_VERSION} -DROOT=${CMAKE_SOURCE_DIR}
      -DVERSION_C=${CMAKE_BINARY_DIR}/src/base/version.c -DREADELF=${CMAKE_READELF} -DNM=${CMAKE_NM} -DCC=${CMAKE_C_COMPILER}
      -DFILES=${files} -DARCHIVES=${archives} -DOUT=${file} -P ${PACKAGING}/sbom.cmake
    DEPENDS ${ARGN} ${PACKAGING}/sbom.cmake ${PACKAGING}/epoch.cmake VERBATIM)
  if(NOT HA_SANITIZE) # where nothing is installed
    set(all ALL)
  endif()
  add_custom_target(${package}-sbom ${all} DEPENDS ${file})
  if(component)
    install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} COMPONENT ${component})
  endif()
endfunction()
bill_of_materials(nccl-ha tools nccl-net-ha nccl-ha-ibgda inccl nccl-ha nccl-ha-agent nccl-ha-ctrld nccl-ha-switchd nccl-net-check nccl-net-perf)
bill_of_materials(nccl-ha-simverbs simverbs simverbs simverbs-tool)
# The wheel has both: wheel/make.py.
bill_of_materials(nccl-ha-wheel "" nccl-net-ha nccl-ha-alone nccl-ha-agent nccl-ha-ctrld nccl-ha-switchd nccl-net-check nccl-net-perf simverbs simverbs-tool)

# ---- scripts that need no source tree -----------------------------------------------------------

# They find programs and plugin by where they are: docs/acceptance.md.
set(SCRIPT_DIR ${CMAKE_INSTALL_DATAROOTDIR}/nccl-ha/scripts)
install(PROGRAMS ${CMAKE_SOURCE_DIR}/scripts/acceptance DESTINATION ${SCRIPT_DIR} COMPONENT tools)
install(FILES ${CMAKE_SOURCE_DIR}/scripts/benchlib.py ${CMAKE_SOURCE_DIR}/scripts/gpulib.py
  DESTINATION ${SCRIPT_DIR} COMPONENT tools)
file(GLOB ACCEPTLIB CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scripts/acceptlib/*.py)
install(FILES ${ACCEPTLIB} DESTINATION ${SCRIPT_DIR}/acceptlib COMPONENT tools)

# ---- units of systemd: for who enables them -----------------------------------------------------

install(FILES ${PACKAGING}/nccl-ha-metrics.service ${PACKAGING}/nccl-ha-ctrld.service
  ${PACKAGING}/nccl-ha-switchd.service
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/nccl-ha COMPONENT tools)

# ---- for what watches hosts ---------------------------------------------------------------------

set(MONITORING ${CMAKE_SOURCE_DIR}/docs/monitoring)
set(MONITORING_DIR ${CMAKE_INSTALL_DATAROOTDIR}/nccl-ha/monitoring)
install(PROGRAMS ${MONITORING}/nccl-ha-check DESTINATION ${MONITORING_DIR} COMPONENT tools)
install(FILES ${MONITORING}/node-problem-detector.json ${MONITORING}/nccl_ha.nhc
  DESTINATION ${MONITORING_DIR} COMPONENT tools)

# ---- completion in bash -------------------------------------------------------------------------

foreach(program nccl-ha nccl-ha-agent nccl-ha-ctrld nccl-ha-switchd nccl-net-perf nccl-net-check)
  install(FILES ${PACKAGING}/completion.bash RENAME ${program}
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions COMPONENT tools)
endforeach()
install(FILES ${PACKAGING}/completion.bash RENAME simverbs
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions COMPONENT simverbs)

# ---- packages -----------------------------------------------------------------------------------

set(CPACK_PACKAGE_NAME nccl-ha)
set(CPACK_PACKAGE_VENDOR nccl-ha)
set(CPACK_PACKAGE_CONTACT "nccl-ha maintainers <maintainers@nccl-ha.invalid>"
  CACHE STRING "The maintainer that packages name")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PACKAGING}/folders.cmake)
set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME nccl-ha-${PROJECT_VERSION})
set(CPACK_SOURCE_IGNORE_FILES /\\.git/ /\\.git$ /build/ /build- /__pycache__/ /\\.cache/)

# Packages that are made twice of the same are the same, byte by byte: tests/install/reproducible.sh.
set(CPACK_HA_ROOT ${CMAKE_SOURCE_DIR})
set(CPACK_PROJECT_CONFIG_FILE ${PACKAGING}/epoch.cmake)

# What this machine has the programs for; `cpack -G` asks for another.
set(CPACK_GENERATOR TGZ)
find_program(RPMBUILD rpmbuild)
if(DPKG_SHLIBDEPS)
  set(CPACK_GENERATOR DEB)
elseif(RPMBUILD)
  set(CPACK_GENERATOR RPM)
endif()

# A line of summary, then the description.
set(DESCRIPTION_RUNTIME
"NCCL network plugin that survives the loss of a NIC, port, cable or switch
Set NCCL_NET_PLUGIN=ha, and a training job goes on over a second path when a
network card, a port, a cable or a switch fails. Every message arrives exactly
once or there is an error, provided that at least one end of each path fences
in hardware; the job sees a short delay instead of an error.

This package has the plugin, libnccl-net-ha.so, and tools that drive and
check any NCCL network plugin without GPUs.")
set(DESCRIPTION_HEADERS
"NCCL network plugin with failover - headers
NCCL's network interface, versions 8 to 12, the layout of the statistics that
nccl-ha publishes in shared memory, and what programs link and compile whose
threads drive queue pairs themselves.")
set(DESCRIPTION_FABRIC
"RDMA fabric in user space, to test and break programs on
A libibverbs.so.1 that simulates devices and switches, for unmodified
programs: no network card, no kernel module and no privileges are needed, and
faults come by rule. It is used through the command simverbs; the library is
in a folder of its own and is never found by accident.")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
# CPack would write scripts that call ldconfig, unless it is given others; of those that do not exist it
# takes none. The loader looks for what programs open by name in the folder itself.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PACKAGING}/none/postinst ${PACKAGING}/none/postrm)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME nccl-ha)
# It has libraries that programs link.
configure_file(${PACKAGING}/shlibs.in ${CMAKE_BINARY_DIR}/shlibs @ONLY)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PACKAGING}/none/postinst ${PACKAGING}/none/postrm ${PACKAGING}/triggers
  ${CMAKE_BINARY_DIR}/shlibs)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "${DESCRIPTION_RUNTIME}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "ibverbs-providers, python3")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "nccl-ha-simverbs, ibverbs-utils")
set(CPACK_DEBIAN_HEADERS_PACKAGE_NAME nccl-ha-dev)
set(CPACK_DEBIAN_HEADERS_DESCRIPTION "${DESCRIPTION_HEADERS}")
set(CPACK_DEBIAN_HEADERS_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_HEADERS_PACKAGE_DEPENDS "nccl-ha (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_HEADERS_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_FABRIC_PACKAGE_NAME nccl-ha-simverbs)
set(CPACK_DEBIAN_FABRIC_DESCRIPTION "${DESCRIPTION_FABRIC}")
set(CPACK_DEBIAN_FABRIC_PACKAGE_SUGGESTS "nccl-ha, ibverbs-utils, perftest")

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_PACKAGE_RELEASE 1)
# rpmbuild makes folders by itself, with the builder's mask.
set(CPACK_RPM_DEFAULT_DIR_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_RPM_PACKAGE_GROUP System/Libraries)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define _build_id_links none
%define use_source_date_epoch_as_buildtime 1
%define clamp_mtime_to_source_date_epoch 1
%define _buildhost reproducible")
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
  /usr/share/man /usr/share/man/man1 /usr/share/man/man7 /usr/share/bash-completion
  /usr/share/bash-completion/completions /usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(group RUNTIME HEADERS FABRIC)
  string(REGEX MATCH "^[^\n]*" summary "${DESCRIPTION_${group}}")
  string(REGEX REPLACE "^[^\n]*\n" "" text "${DESCRIPTION_${group}}")
  set(CPACK_RPM_${group}_PACKAGE_NAME ${CPACK_DEBIAN_${group}_PACKAGE_NAME})
  set(CPACK_RPM_${group}_PACKAGE_SUMMARY "${summary}")
  set(CPACK_RPM_${group}_PACKAGE_DESCRIPTION "${text}")
endforeach()
set(CPACK_RPM_HEADERS_PACKAGE_REQUIRES "nccl-ha = ${PROJECT_VERSION}")
# A library for simulations must not satisfy who asks for libibverbs.
set(CPACK_RPM_FABRIC_PACKAGE_AUTOPROV OFF)

include(CPack)
cpack_add_component_group(runtime)
cpack_add_component_group(headers)
cpack_add_component_group(fabric)
cpack_add_component(plugin GROUP runtime)
cpack_add_component(ibgda GROUP runtime)
cpack_add_component(inccl GROUP runtime)
cpack_add_component(tools GROUP runtime)
cpack_add_component(dev GROUP headers)
cpack_add_component(simverbs GROUP fabric)

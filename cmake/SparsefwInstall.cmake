# Targets of what users run, and `cmake --install` in two components:
#   runtime  server, CLI, CUDA module, systemd unit, configuration file, completion
#   dev      headers, static libraries, CMake package SparseFW
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
# Installing does not ask for tests and benchmarks: sparsefw_install builds what it copies.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

add_custom_target(sparsefw_programs)  # server and CLI
add_custom_target(sparsefw_runtime DEPENDS sparsefw_programs)  # and the CUDA module where nvcc is
add_custom_target(sparsefw_install DEPENDS sparsefw_runtime)

# A library of EXPORT_SET with the headers of its users.
function(_sparsefw_install_library name export_set)
  set_target_properties(sparsefw_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS sparsefw_${name} EXPORT ${export_set}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
  add_dependencies(sparsefw_install sparsefw_${name})
  get_target_property(headers sparsefw_${name} SPARSEFW_PUBLIC_HEADERS)
  if(headers)
    install(DIRECTORY ${headers}/ DESTINATION include COMPONENT dev FILES_MATCHING PATTERN *.h)
  endif()
endfunction()

set(SPARSEFW_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/SparseFW)
foreach(_name IN ITEMS base io core)
  _sparsefw_install_library(${_name} SparseFWCore)
endforeach()
set_target_properties(sparsefw_cblas PROPERTIES EXPORT_NAME cblas)
install(TARGETS sparsefw_cblas EXPORT SparseFWCore COMPONENT dev)
install(EXPORT SparseFWCore NAMESPACE sparsefw:: DESTINATION ${SPARSEFW_CMAKE_DIR} COMPONENT dev)

if(SPARSEFW_BUILD_SERVER)
  foreach(_name IN ITEMS proto client)
    _sparsefw_install_library(${_name} SparseFWClient)
  endforeach()
  install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/gen/ DESTINATION include COMPONENT dev
          FILES_MATCHING PATTERN *.h)
  install(EXPORT SparseFWClient NAMESPACE sparsefw:: DESTINATION ${SPARSEFW_CMAKE_DIR}
          COMPONENT dev)
endif()

configure_package_config_file(cmake/SparseFWConfig.cmake.in SparseFWConfig.cmake
                              INSTALL_DESTINATION ${SPARSEFW_CMAKE_DIR})
write_basic_package_version_file(SparseFWConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SparseFWConfig.cmake
              ${PROJECT_BINARY_DIR}/SparseFWConfigVersion.cmake
        DESTINATION ${SPARSEFW_CMAKE_DIR} COMPONENT dev)

if(SPARSEFW_BUILD_SERVER)
  add_dependencies(sparsefw_programs sparsefw-server sparsefw-cli)
  install(TARGETS sparsefw-server sparsefw-cli
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  if(TARGET sparsefw_cuda)
    add_dependencies(sparsefw_runtime sparsefw_cuda)
    # Where the programs look for it: core/src/backends/cuda_module.cc.
    install(TARGETS sparsefw_cuda LIBRARY DESTINATION lib/sparsefw COMPONENT runtime)
  endif()
  # README's links lead to the pages beside it.
  install(FILES README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/sparsefw COMPONENT runtime)
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/sparsefw COMPONENT runtime FILES_MATCHING PATTERN *.md)
  foreach(_program IN ITEMS sparsefw-cli sparsefw-server)
    install(FILES ${PROJECT_SOURCE_DIR}/client/cpp/cli/completion/${_program}.bash
            RENAME ${_program} COMPONENT runtime
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${PROJECT_SOURCE_DIR}/client/cpp/cli/completion/sparsefw.fish
            RENAME ${_program}.fish COMPONENT runtime
            DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endforeach()
  install(FILES ${PROJECT_SOURCE_DIR}/client/cpp/cli/completion/sparsefw.zsh
          RENAME _sparsefw COMPONENT runtime
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/client/cpp/cli/completion/words
          DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsefw/completion COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/prometheus/prometheus.yml
                ${PROJECT_SOURCE_DIR}/deploy/prometheus/blackbox.yml
                ${PROJECT_SOURCE_DIR}/deploy/prometheus/rules.yml
                ${PROJECT_SOURCE_DIR}/deploy/prometheus/alerts.yml
          DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsefw/prometheus COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/grafana/sparsefw.json
                ${PROJECT_SOURCE_DIR}/deploy/grafana/provisioning.yaml
          DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsefw/grafana COMPONENT runtime)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/deploy/backup/sparsefw-backup
          DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsefw/backup COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/backup/sparsefw-backup.service
                ${PROJECT_SOURCE_DIR}/deploy/backup/sparsefw-backup.timer
          DESTINATION ${CMAKE_INSTALL_DATADIR}/sparsefw/backup COMPONENT runtime)
  # The unit holds paths, which depend on the prefix of `cmake --install --prefix`.
  install(CODE "set(SPARSEFW_DEPLOY_DIR \"${PROJECT_SOURCE_DIR}/deploy\")
set(SPARSEFW_BINDIR \"${CMAKE_INSTALL_BINDIR}\")" COMPONENT runtime)
  install(SCRIPT cmake/InstallService.cmake COMPONENT runtime)
endif()

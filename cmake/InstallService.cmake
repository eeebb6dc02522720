# Run by `cmake --install`: the systemd unit and the server's configuration file. The latter is
# /etc/sparsefw/server.conf for the prefix /usr, <prefix>/etc/sparsefw/server.conf otherwise; one
# that is there already stays as it is.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(SPARSEFW_SYSCONFDIR /etc)
else()
  set(SPARSEFW_SYSCONFDIR ${CMAKE_INSTALL_PREFIX}/etc)
endif()
if(DEFINED ENV{TMPDIR})
  set(_scratch $ENV{TMPDIR})
else()
  set(_scratch /tmp)
endif()
string(RANDOM LENGTH 12 _random)
set(_scratch ${_scratch}/sparsefw-install-${_random})
configure_file(${SPARSEFW_DEPLOY_DIR}/systemd/sparsefw-server.service.in
               ${_scratch}/sparsefw-server.service @ONLY)
file(INSTALL ${_scratch}/sparsefw-server.service
     DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
file(REMOVE_RECURSE ${_scratch})
if(NOT EXISTS $ENV{DESTDIR}${SPARSEFW_SYSCONFDIR}/sparsefw/server.conf)
  file(INSTALL ${SPARSEFW_DEPLOY_DIR}/server.conf DESTINATION ${SPARSEFW_SYSCONFDIR}/sparsefw)
endif()

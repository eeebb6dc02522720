# Debian packages by CPack: script/package. One per install component.
if(NOT SPARSEFW_BUILD_SERVER)
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sparsefw)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sparse masks for linear layers, over gRPC")
set(CPACK_PACKAGE_VENDOR "SparseFW maintainers")
set(CPACK_PACKAGE_CONTACT "SparseFW maintainers <maintainers@sparsefw.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
# DESTDIR and not another prefix, so that /etc is /etc.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME sparsefw)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
"sparsefw-server takes the weights and the Gram matrix (or activations) of a
linear layer over gRPC and answers with a sparse mask that loses little and a
lower bound of what any mask must lose. sparsefw-cli submits and watches jobs.
Jobs run on the CPU, or on an NVIDIA GPU where there is a driver.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
    ${PROJECT_SOURCE_DIR}/deploy/debian/postinst ${PROJECT_SOURCE_DIR}/deploy/debian/prerm
    ${PROJECT_SOURCE_DIR}/deploy/debian/postrm ${PROJECT_SOURCE_DIR}/deploy/debian/conffiles)

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libsparsefw-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
# The packages that SparseFWConfig.cmake looks for.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "libabsl-dev, libgrpc++-dev, libhwy-dev, libisal-dev, libopenblas-dev, libprotobuf-dev, libtbb-dev, pkg-config, protobuf-compiler, protobuf-compiler-grpc")
set(CPACK_COMPONENT_DEV_DESCRIPTION
"Static libraries and headers of the SparseFW solver (sparsefw::core) and of
the client of its server (sparsefw::client), with the CMake package SparseFW.")

# Only packages hold changelog and copyright in Debian's format.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/PackageDocs.cmake)
set(CPACK_SPARSEFW_DEBIAN_DIR ${PROJECT_SOURCE_DIR}/deploy/debian)
include(CPack)

# Everything comes from Debian's packages; script/bootstrap installs them.
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(TBB CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)

# Any library with the CBLAS interface will do; OpenBLAS unless BLA_VENDOR says otherwise.
if(NOT DEFINED BLA_VENDOR)
  set(BLA_VENDOR OpenBLAS)
endif()
find_package(BLAS REQUIRED)
find_path(SPARSEFW_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas-pthread openblas REQUIRED)
mark_as_advanced(SPARSEFW_CBLAS_INCLUDE_DIR)
if(NOT TARGET sparsefw::cblas)
  add_library(sparsefw_cblas INTERFACE)
  add_library(sparsefw::cblas ALIAS sparsefw_cblas)
  target_link_libraries(sparsefw_cblas INTERFACE BLAS::BLAS)
  target_include_directories(sparsefw_cblas SYSTEM INTERFACE ${SPARSEFW_CBLAS_INCLUDE_DIR})
endif()

if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  find_package(GTest CONFIG REQUIRED)
endif()
if(SPARSEFW_BUILD_BENCHMARKS)
  find_package(benchmark CONFIG REQUIRED)
endif()

if(SPARSEFW_BUILD_SERVER)
  # Debian ships no CMake config for protobuf: the module comes first, gRPC's config needs it.
  find_package(Protobuf REQUIRED)
  find_package(gRPC CONFIG REQUIRED)
  find_package(prometheus-cpp CONFIG REQUIRED)
  find_package(spdlog CONFIG REQUIRED)
  find_package(CLI11 CONFIG REQUIRED)
endif()

# Found or not, the programs of this version are CPU-only: there is no CUDA
# engine yet. The summary says so.
find_program(SPARSEFW_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin)
mark_as_advanced(SPARSEFW_NVCC)

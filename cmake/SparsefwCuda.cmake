# The CUDA language, where the module libsparsefw_cuda.so is to be built. Sets
# SPARSEFW_CUDA_MODULE to ON or OFF and SPARSEFW_CUDA_REASON to why.
#
# Programs neither link nor need anything of it: they look for the module at
# run time (core/src/cuda/module.h).
set(SPARSEFW_WITH_CUDA AUTO CACHE STRING "Build the CUDA engine: AUTO (if there is nvcc), ON, OFF")
set_property(CACHE SPARSEFW_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)

find_program(SPARSEFW_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin)
mark_as_advanced(SPARSEFW_NVCC)
set(SPARSEFW_CUDA_MODULE OFF)
if(SPARSEFW_WITH_CUDA STREQUAL "OFF")
  set(SPARSEFW_CUDA_REASON "SPARSEFW_WITH_CUDA is OFF")
elseif(SPARSEFW_SANITIZER)
  # The tests run the engine's code on the host there: tests/cuda_on_host.
  set(SPARSEFW_CUDA_REASON "not in sanitizer builds")
elseif(NOT SPARSEFW_NVCC)
  set(SPARSEFW_CUDA_REASON "no nvcc")
  if(SPARSEFW_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SPARSEFW_WITH_CUDA is ON, and there is no nvcc in PATH, "
                        "CUDA_HOME or /usr/local/cuda/bin")
  endif()
else()
  set(SPARSEFW_CUDA_MODULE ON)
endif()

if(SPARSEFW_CUDA_MODULE)
  # CMake learnt C++20 for nvcc in 3.25.2; Debian 12 has 3.25.1.
  if(CMAKE_VERSION VERSION_LESS 3.25.2)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  # Ampere, Hopper and Blackwell, and code that the driver translates for other and later ones.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 90-virtual)
  endif()
  set(CMAKE_CUDA_COMPILER ${SPARSEFW_NVCC})
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  enable_language(CUDA)
  # Only after enable_language, whose trial compilation does not know the two options.
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # Debian 12's module wants to mark this target as deprecated, which CUDA 13 no longer has.
  if(CMAKE_VERSION VERSION_LESS 3.25.2 AND NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  endif()
  find_package(CUDAToolkit 13 REQUIRED)
  set(SPARSEFW_CUDA_REASON "${SPARSEFW_NVCC}, code for ${CMAKE_CUDA_ARCHITECTURES}")
endif()

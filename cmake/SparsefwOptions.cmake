# Compile options that every target of the project shares, as the interface
# target sparsefw::options. Nothing global but the build type and the launcher.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(SPARSEFW_CCACHE ccache)
mark_as_advanced(SPARSEFW_CCACHE)
if(SPARSEFW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The two variables let checkouts in different folders share objects.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${SPARSEFW_CCACHE})
endif()

add_library(sparsefw_options INTERFACE)
add_library(sparsefw::options ALIAS sparsefw_options)
target_compile_features(sparsefw_options INTERFACE cxx_std_20)
# Some of the libraries used ask for -pthread, some do not. All sources get it: a precompiled header
# fits only those that are compiled with the same options.
target_compile_options(sparsefw_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-pthread>)
set(CMAKE_CXX_EXTENSIONS OFF)
target_include_directories(sparsefw_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(sparsefw_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion>
  # Not -Wconversion: the code that nvcc generates has conversions of its own.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>)
if(SPARSEFW_WERROR)
  target_compile_options(sparsefw_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()

if(SPARSEFW_SANITIZER STREQUAL "address")
  set(_sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined
                -fno-omit-frame-pointer)
elseif(SPARSEFW_SANITIZER STREQUAL "thread")
  # g++ warns that its ThreadSanitizer does not model fences.
  set(_sanitize -fsanitize=thread -fno-omit-frame-pointer)
  target_compile_options(sparsefw_options INTERFACE -Wno-tsan)
elseif(SPARSEFW_SANITIZER)
  message(FATAL_ERROR "SPARSEFW_SANITIZER must be address, thread or empty; "
                      "got \"${SPARSEFW_SANITIZER}\"")
endif()
if(_sanitize)
  target_compile_options(sparsefw_options INTERFACE ${_sanitize})
  target_link_options(sparsefw_options INTERFACE ${_sanitize})
endif()

# Test code is compiled once and run once: not optimised, half of its compilation. The libraries that
# it tests keep the options of the build type.
add_library(sparsefw_test_options INTERFACE)
add_library(sparsefw::test_options ALIAS sparsefw_test_options)
target_compile_options(sparsefw_test_options INTERFACE
  $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O0>)

find_program(SPARSEFW_MOLD mold)
mark_as_advanced(SPARSEFW_MOLD)
if(SPARSEFW_MOLD)
  target_link_options(sparsefw_options INTERFACE -fuse-ld=mold)
endif()

# Precompiled headers: what most sources include of the standard library, Abseil, gRPC and
# GoogleTest. Two thirds of the time of a small source of core go into these. Headers of the
# project are in none of them, so that an edit rebuilds no more than without. The preset dev builds
# without, which shows where an include is missing. Generated code gains nothing.
#
#   sparsefw_precompile(target KIND)   KIND: std, grpc, program, test or test_grpc
#
# g++ takes a precompiled header only where the code generation options are the same: std and grpc
# are for the static libraries (-fPIC), program for programs, test and test_grpc for those with
# sparsefw::test_options.
option(SPARSEFW_PCH "Precompile the headers of the libraries used" OFF)

# Server, client and their tests spend most of their compilation on headers and templates of gRPC,
# CLI11 and GoogleMock: several sources are compiled as one. Names in anonymous namespaces are
# then those of the whole unit. Core is left alone: how its kernels are compiled stays as it is.
#
#   sparsefw_unity(target ...)
option(SPARSEFW_UNITY "Compile several sources of server, client and their tests as one" OFF)
function(sparsefw_unity)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ${SPARSEFW_UNITY})
endfunction()

set(_sparsefw_pch_std
  <algorithm> <array> <atomic> <cmath> <cstdint> <functional> <map> <memory> <optional> <set> <span>
  <string> <string_view> <thread> <tuple> <utility> <vector>
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h> <absl/time/time.h>)
set(_sparsefw_pch_grpc <grpcpp/grpcpp.h> <google/protobuf/message.h>)
set(_sparsefw_pch_program <nlohmann/json.hpp>)
set(_sparsefw_pch_test <gmock/gmock.h> <gtest/gtest.h>)

# Made by its first user.
function(_sparsefw_pch_target kind)
  set(target sparsefw_pch_${kind})
  set(source ${PROJECT_BINARY_DIR}/pch/${kind}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "" @ONLY)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${source})
  if(CMAKE_CXX_COMPILER_LAUNCHER AND SPARSEFW_CCACHE)
    # Without CCACHE_BASEDIR: a precompiled header of another checkout makes g++ take minutes and
    # gigabytes for a source.
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${SPARSEFW_CCACHE}")
  endif()
  target_link_libraries(${target} PRIVATE sparsefw::options)
  set(headers ${_sparsefw_pch_std})
  if(kind MATCHES "grpc")
    list(APPEND headers ${_sparsefw_pch_grpc})
    target_link_libraries(${target} PRIVATE gRPC::grpc++)
  endif()
  if(kind MATCHES "test")
    list(APPEND headers ${_sparsefw_pch_test})
    target_link_libraries(${target} PRIVATE sparsefw::test_options GTest::gtest GTest::gmock)
  elseif(kind STREQUAL "program")
    list(APPEND headers ${_sparsefw_pch_program})
    target_link_libraries(${target} PRIVATE nlohmann_json::nlohmann_json)
  else()
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

function(sparsefw_precompile target kind)
  if(NOT SPARSEFW_PCH)
    return()
  endif()
  if(NOT TARGET sparsefw_pch_${kind})
    _sparsefw_pch_target(${kind})
  endif()
  target_precompile_headers(${target} REUSE_FROM sparsefw_pch_${kind})
endfunction()

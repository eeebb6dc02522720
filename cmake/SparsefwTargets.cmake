# sparsefw_library(name SOURCES ... [LIBRARIES ...] [PRIVATE_LIBRARIES ...])
#   static library sparsefw_<name> with the alias sparsefw::<name>
# sparsefw_public_headers(name FOLDER)
#   FOLDER is an include folder of the library's users; installed as include/
# sparsefw_program(name SOURCES ... LIBRARIES ...)
#   program <name> in <build>/bin
# sparsefw_test(name SOURCES ... LIBRARIES ... [LABELS ...] [LONG])
#   GoogleTest program, one CTest entry. Label tsan: also run under ThreadSanitizer. LONG: starts early.
# sparsefw_test_paths(name ...)
#   test programs that read files of the source or build folder
# sparsefw_bundled(name)
#   a program or test (label gpu) that machines with a GPU run: script/gpu-check takes it along
# A folder whose sources include gRPC sets SPARSEFW_GRPC_SOURCES: it changes what is precompiled.

function(sparsefw_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;PRIVATE_LIBRARIES")
  add_library(sparsefw_${name} STATIC ${arg_SOURCES})
  add_library(sparsefw::${name} ALIAS sparsefw_${name})
  set_target_properties(sparsefw_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_features(sparsefw_${name} PUBLIC cxx_std_20)  # of those who install it too
  target_link_libraries(sparsefw_${name} PUBLIC ${arg_LIBRARIES}
                        PRIVATE $<BUILD_INTERFACE:sparsefw::options> ${arg_PRIVATE_LIBRARIES})
  if(SPARSEFW_GRPC_SOURCES)
    sparsefw_precompile(sparsefw_${name} grpc)
  else()
    sparsefw_precompile(sparsefw_${name} std)
  endif()
endfunction()

function(sparsefw_public_headers name folder)
  target_include_directories(sparsefw_${name} PUBLIC
    $<BUILD_INTERFACE:${folder}> $<INSTALL_INTERFACE:include>)
  set_property(TARGET sparsefw_${name} PROPERTY SPARSEFW_PUBLIC_HEADERS ${folder})
endfunction()

# Everything that script/gpu-check bundles: the CUDA module and what sparsefw_bundled names.
add_custom_target(sparsefw_gpu_check)
function(_sparsefw_bundle_cuda_module)
  if(TARGET sparsefw_cuda)
    add_dependencies(sparsefw_gpu_check sparsefw_cuda)
  endif()
endfunction()
cmake_language(DEFER CALL _sparsefw_bundle_cuda_module)  # when all targets are known

# In the bundle libraries lie in ../lib. DT_RPATH, unlike DT_RUNPATH, also counts
# for what libraries need in their turn.
function(sparsefw_bundled name)
  set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  add_dependencies(sparsefw_gpu_check ${name})
endfunction()

function(sparsefw_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  target_link_libraries(${name} PRIVATE sparsefw::options ${arg_LIBRARIES})
endfunction()

# Everything that the tsan preset builds.
add_custom_target(sparsefw_tsan_tests)

function(sparsefw_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LONG" "" "SOURCES;LIBRARIES;LABELS")
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  sparsefw_unity(${name})
  set(kind test)
  target_link_libraries(${name} PRIVATE sparsefw::options sparsefw::test_options
                        ${arg_LIBRARIES} GTest::gtest GTest::gmock GTest::gtest_main)
  if(SPARSEFW_GRPC_SOURCES)
    string(APPEND kind _grpc)
  endif()
  sparsefw_precompile(${name} ${kind})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}")
  if(arg_LONG)
    set_tests_properties(${name} PROPERTIES COST 90)
  endif()
  if(tsan IN_LIST arg_LABELS)
    add_dependencies(sparsefw_tsan_tests ${name})
  endif()
endfunction()

# Only where needed: an object that knows its checkout's path is no other checkout's.
function(sparsefw_test_paths)
  foreach(name IN LISTS ARGN)
    target_compile_definitions(${name} PRIVATE
      SPARSEFW_SOURCE_DIR="${PROJECT_SOURCE_DIR}" SPARSEFW_BINARY_DIR="${PROJECT_BINARY_DIR}")
  endforeach()
endfunction()

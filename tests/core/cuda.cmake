# The tests of all engines, once more for the CUDA engine. core_test is
# CMakeLists.txt's. Every program becomes three CTest entries:
#   <name>               everything but the CUDA engine
#   <name>_gpu           the CUDA engine on a real device; "Skipped" without one,
#                        unless SPARSEFW_REQUIRE_GPU=1
#   <name>_cuda_on_host  the CUDA engine's sources compiled for the host
#                        (tests/cuda_on_host): proves the logic, not the device
function(cuda_engine_test name)
  sparsefw_bundled(${name})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=-*cuda*")
  add_test(NAME ${name}_gpu COMMAND ${name} --gtest_filter=*cuda*)
  set_tests_properties(${name}_gpu PROPERTIES
    LABELS gpu SKIP_REGULAR_EXPRESSION "no device: "
    FAIL_REGULAR_EXPRESSION "\\[  FAILED  \\]")
  # Hundreds of iterations take a minute there: a part of the combinations, and fewer with a
  # sanitizer. Devices run all of them.
  string(JOIN ":" _left_out
    *PathTest*F16 *PathTest*float64_per_row*F32 *PathTest*float64_unstructured*F32
    *ProductPrecisionTest*per_row*
    *ShapeTest*64x96*F16 *ShapeTest*64x96*BF16 *ShapeTest*float64*64x96*
    *ShapeTest*float32*F16 *ShapeTest*float64*BF16
    *RefreshTest*float32*line_search *RefreshTest*float64*open_loop *RefreshTest*float32_per_row*
    *RefreshTest*float64_unstructured*
    *DenseShareTest*float64*always *DenseShareTest*float64*sometimes
    *IterationStateTest*float32*alpha_0 *IterationStateTest*float64*open_loop_alpha_0
    *ResumeTest*alpha_5 *ResumeTest*float64*alpha_0
    *DeterminismTest*float32*alpha_0 *PruneTest*alps*33x156*
    *JointTest.EveryPatternAlphaAndDType*cuda_float64 *JointLimitsTest.OutOfTime*cuda_float64
    *JointLimitsTest.SameBits*cuda_float64)
  if(SPARSEFW_SANITIZER)
    string(APPEND _left_out ":"
        *PathTest*:*JointLimitsTest.*:*PruneTest*alps*:*ProductPrecisionTest*:*RefreshTest*:*ShapeTest*F16:*DenseShareTest*per_row*)
  endif()
  add_test(NAME ${name}_cuda_on_host COMMAND ${name} --gtest_filter=*cuda*-${_left_out})
  set_tests_properties(${name}_cuda_on_host PROPERTIES
    LABELS cuda_on_host COST 90
    ENVIRONMENT "SPARSEFW_CUDA_MODULE=$<TARGET_FILE:sparsefw_cuda_module_on_host>;SPARSEFW_REQUIRE_GPU=1")
endfunction()

# The module of the emulated device; loaded as the real one is.
include(${PROJECT_SOURCE_DIR}/core/src/cuda/sources.cmake)
list(TRANSFORM SPARSEFW_CUDA_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/core/src/cuda/)
sparsefw_cuda_on_host_library(cuda_engine_on_host
  SOURCES ${SPARSEFW_CUDA_SOURCES} LIBRARIES sparsefw::core)
add_library(sparsefw_cuda_module_on_host MODULE ${PROJECT_SOURCE_DIR}/core/src/cuda/module.cc)
set_target_properties(sparsefw_cuda_module_on_host PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_link_libraries(sparsefw_cuda_module_on_host PRIVATE
  sparsefw::options sparsefw::cuda_engine_on_host sparsefw::core)
# As in the real module: nothing of what it links is seen by, or taken from, the program.
target_link_options(sparsefw_cuda_module_on_host PRIVATE
  -Wl,--exclude-libs,ALL -Wl,-Bsymbolic)

# The kernels of an iteration (unstructured and 2:4), its capture, prune and joint, one by one, as
# script/gpu-check runs them on a device.
if(TARGET sparsefw_bench_support)
  include(${PROJECT_SOURCE_DIR}/core/benchmarks/programs/smoke/smoke.cmake)
  add_executable(sparsefw-bench-smoke-on-host ${SPARSEFW_SMOKE_SOURCES})
  set_target_properties(sparsefw-bench-smoke-on-host PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(sparsefw-bench-smoke-on-host PRIVATE
    sparsefw::options sparsefw::test_options sparsefw_bench_support sparsefw::cuda_engine_on_host
    sparsefw::core)
endif()

# The parts of the engine one by one; linked with the emulation, which is asked what is allocated.
set(_parts cuda/cuda_device_bytes_test.cc cuda/cuda_row_matching_test.cc cuda/cuda_salient_test.cc
  cuda/cuda_select_test.cc cuda/cuda_staged_upload_test.cc cuda/cuda_symmetric_product_test.cc)
sparsefw_test(cuda_parts_test SOURCES ${_parts} cuda/cuda_cards_test.cc cuda/cuda_runtime_test.cc
  LIBRARIES sparsefw::testing sparsefw::cuda_engine_on_host sparsefw::core LABELS cuda_on_host LONG)

# The same for a real device where there is the toolkit, without what provokes errors of CUDA.
if(TARGET sparsefw::cuda_engine)
  add_executable(cuda_parts_test_gpu ${_parts} ${PROJECT_SOURCE_DIR}/tests/cuda_on_host/real_device.cc)
  set_target_properties(cuda_parts_test_gpu PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests LINKER_LANGUAGE CXX)
  sparsefw_unity(cuda_parts_test_gpu)
  target_link_libraries(cuda_parts_test_gpu PRIVATE
    sparsefw::options sparsefw::test_options sparsefw::testing sparsefw::cuda_engine sparsefw::core
    GTest::gtest GTest::gmock GTest::gtest_main)
  sparsefw_precompile(cuda_parts_test_gpu test)
  sparsefw_bundled(cuda_parts_test_gpu)
  add_test(NAME cuda_parts_test_gpu COMMAND cuda_parts_test_gpu)
  set_tests_properties(cuda_parts_test_gpu PROPERTIES
    LABELS gpu SKIP_REGULAR_EXPRESSION "no device: "
    FAIL_REGULAR_EXPRESSION "\\[  FAILED  \\]")
endif()

# What nvcc made of the kernels, against script/checks/kernels.json; cuobjdump comes from PyPI.
if(TARGET sparsefw::cuda_engine)
  add_test(NAME cuda_kernels COMMAND ${PROJECT_SOURCE_DIR}/script/checks/kernels
           --objects ${PROJECT_BINARY_DIR}/core/src/cuda/CMakeFiles/sparsefw_cuda_engine.dir)
  add_test(NAME cuda_kernels_check
           COMMAND /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider
                   ${PROJECT_SOURCE_DIR}/tests/script/test_kernels.py)
  set_tests_properties(cuda_kernels cuda_kernels_check PROPERTIES
    LABELS unit SKIP_RETURN_CODE 77 FIXTURES_REQUIRED python_client
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;CUDACXX=${CMAKE_CUDA_COMPILER}")
endif()

core_test(cuda_arithmetic_test LABELS unit
  SOURCES cuda/cuda_arithmetic_reconstruct_test cuda/cuda_arithmetic_swap_test
          cuda/cuda_arithmetic_test)
core_test(device_test LABELS unit
  SOURCES cuda/device_gram_test cuda/update_forms_test engines/loss_near_test engines/prune_test
          engines/start_choice_test)
foreach(name checkpoint_test conformance_test cpu_engine_test device_test gram_accumulator_test
        iteration_state_test joint_test refine_test)
  cuda_engine_test(${name})
endforeach()

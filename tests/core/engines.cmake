# Engines, registry and solver. core_test is CMakeLists.txt's.
core_test(conformance_test LABELS unit tsan SOURCES engines/conformance_test engines/any_engine_test)
core_test(conformance_fixture_test LABELS unit SOURCES engines/conformance_fixture_test)
target_link_libraries(conformance_fixture_test PRIVATE sparsefw::io)
core_test(iteration_state_test LABELS unit tsan SOURCES engines/iteration_state_test)
core_test(refine_test LABELS unit tsan
  SOURCES engines/reconstruct_test engines/refine_shapes_test engines/refine_test
          engines/round_ties_test)
core_test(joint_test LABELS unit tsan
  SOURCES cpu/joint_parts_test engines/joint_devices_test engines/joint_limits_test
          engines/joint_test
          solver/shrinkage_test solver/solver_joint_test)

core_test(cpu_engine_test LABELS unit tsan SOURCES cpu/cpu_engine_test)
core_test(cpu_test LABELS unit tsan
  SOURCES cpu/conjugate_gradients_test cpu/cpu_parts_test cpu/cpu_products_test cpu/half_product_loss_test
          cpu/loss_change_test cpu/screened_iterations_test cpu/swap_parts_test
          cpu/threshold_forecast_test cpu/threshold_test cpu/vertex_update_test cpu/weights_in_place_test)

core_test(backend_test LABELS unit tsan SOURCES backends/backend_test)
# Both load modules that stand for CUDA's, in a process of their own.
core_test(cuda_module_test LABELS unit SOURCES backends/cuda_module_test)
core_test(cuda_registry_test LABELS unit SOURCES backends/cuda_registry_test)
foreach(_test IN ITEMS cuda_module_test cuda_registry_test)
  add_dependencies(${_test} sparsefw_fake_cuda sparsefw_no_cuda)
endforeach()

core_test(solver_test LABELS unit tsan
  SOURCES solver/checkpoint_refusal_test solver/golden_test solver/refine_golden_test
          solver/options_test solver/solver_after_test solver/solver_inputs_test
          solver/solver_limits_test solver/solver_options_test solver/solver_test
          solver/stages_test solver/sweep_test)
core_test(checkpoint_test LABELS unit SOURCES solver/checkpoint_test)
core_test(solver_refine_test LABELS unit SOURCES solver/solver_refine_test)
core_test(joint_against_others_test LABELS unit SOURCES solver/joint_against_others_test)
foreach(_test IN ITEMS joint_against_others_test solver_refine_test)
  target_link_libraries(${_test} PRIVATE sparsefw::io)
endforeach()

set_tests_properties(checkpoint_test conformance_test conformance_fixture_test cpu_engine_test
                     solver_refine_test
                     PROPERTIES COST 90)
sparsefw_test_paths(conformance_fixture_test cuda_module_test cuda_registry_test
                    joint_against_others_test solver_refine_test solver_test)

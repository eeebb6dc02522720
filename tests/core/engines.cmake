# Engines, registry and solver. core_test is CMakeLists.txt's.
core_test(conformance_test unit tsan)
core_test(conformance_fixture_test unit)
core_test(cpu_engine_test unit tsan)
core_test(cpu_parts_test unit tsan)
core_test(cpu_products_test unit tsan)
core_test(free_columns_test unit tsan)
core_test(backend_test unit tsan)
core_test(solver_options_test unit)
core_test(solver_limits_test unit tsan)
core_test(solver_test unit tsan)
target_link_libraries(conformance_fixture_test PRIVATE sparsefw::io)
set_tests_properties(conformance_test conformance_fixture_test cpu_engine_test
                     PROPERTIES TIMEOUT 900)

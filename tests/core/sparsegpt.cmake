# SparseGPT and ALPS. core_test is CMakeLists.txt's.
core_test(sparsegpt_test LABELS unit tsan
  SOURCES alps/alps_golden_test sparsegpt/plain_sparsegpt sparsegpt/sparsegpt_fixture_test
          sparsegpt/sparsegpt_golden_test sparsegpt/sparsegpt_limits_test
          sparsegpt/sparsegpt_parts_test sparsegpt/sparsegpt_test)
target_link_libraries(sparsegpt_test PRIVATE sparsefw::io)
sparsefw_test_paths(sparsegpt_test)

# SparseGPT. core_test is CMakeLists.txt's.
core_test(sparsegpt_golden_test unit)
core_test(sparsegpt_parts_test unit tsan)
core_test(sparsegpt_limits_test unit tsan)
core_test(sparsegpt_test unit tsan)
core_test(weights_loss_test unit tsan)
target_sources(sparsegpt_test PRIVATE plain_sparsegpt.cc)

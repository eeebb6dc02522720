# Orchestration and registry, a part of sparsefw::core.
set(SPARSEFW_SOLVER_SOURCES solver/cuda_module.cc solver/options.cc solver/registry.cc
    solver/solve_after.cc solver/solve_run.cc solver/solve_sparsegpt.cc solver/solver.cc
    solver/sweep.cc)

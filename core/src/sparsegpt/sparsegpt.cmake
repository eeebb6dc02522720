# SparseGPT, a part of sparsefw::core.
set(SPARSEFW_SPARSEGPT_SOURCES
    sparsegpt/column_sweep.cc sparsegpt/damping.cc sparsegpt/inverse_factor.cc
    sparsegpt/lowest_scores.cc sparsegpt/sparsegpt.cc sparsegpt/striped_gemm.cc)

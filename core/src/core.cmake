# The numeric library: validation, saliency, the solver and its engines.
find_package(hwy CONFIG REQUIRED)

sparsefw_library(core
  SOURCES
    parallel/host_info.cc parallel/parallel_context.cc
    linalg/blas.cc linalg/finite.cc linalg/gram_accumulator.cc linalg/scaled_layer.cc
    linalg/widen.cc
    select/group_select.cc select/selection.cc
    layer/pattern.cc layer/problem.cc layer/saliency.cc
    reference/reference_backend.cc reference/reference_engine.cc
    reference/reference_joint.cc reference/reference_reconstruct.cc reference/reference_refine.cc
    cpu/runtime/cpu_backend.cc cpu/runtime/cpu_engine.cc
    cpu/iteration/frank_wolfe.cc cpu/iteration/frank_wolfe_screened.cc
    cpu/iteration/frank_wolfe_dense.cc cpu/iteration/frank_wolfe_state.cc
    cpu/iteration/tiled_product.cc cpu/iteration/vertex_update.cc
    cpu/screen/active_row.cc cpu/screen/screen_kernels.cc
    cpu/screen/screened_epoch.cc cpu/screen/screened_epoch_state.cc
    cpu/linalg/float64_product.cc cpu/linalg/gram_product.cc cpu/linalg/kernels.cc
    cpu/linalg/half_product_loss.cc
    cpu/linalg/loss_change.cc cpu/linalg/panel_kernels.cc
    cpu/select/row_selector.cc cpu/select/whole_matrix_selector.cc
    cpu/swaps/swap_kernels.cc cpu/swaps/swap_refine.cc
    joint/joint_rows.cc joint/row_window.cc
    cpu/joint/joint_kernels.cc cpu/joint/joint_search.cc
    cpu/joint/tableau.cc cpu/joint/tableau_build.cc
    cpu/reconstruct/nystrom_preconditioner.cc cpu/reconstruct/reconstruct.cc
    cpu/reconstruct/row_conjugate_gradients.cc
    sparsegpt/damping.cc sparsegpt/inverse_factor.cc sparsegpt/sparsegpt.cc
    alps/alps.cc alps/shifted_inverse.cc
    solver/checkpoint_file.cc solver/checkpoint_log.cc
    solver/frank_wolfe_stage.cc solver/joint_stage.cc solver/limits.cc solver/new_weights.cc
    solver/options.cc solver/own_weights.cc solver/preset.cc solver/shrunk_gram.cc
    solver/solve_state.cc solver/solver.cc solver/swaps.cc solver/sweep.cc solver/warm_start.cc
    backends/cuda_module.cc backends/registry.cc
  LIBRARIES sparsefw::base absl::time absl::function_ref
  PRIVATE_LIBRARIES sparsefw::cblas TBB::tbb hwy::hwy ${CMAKE_DL_LIBS})

# parallel_context.h says why.
if(SPARSEFW_SANITIZER STREQUAL "thread")
  set_source_files_properties(parallel/parallel_context.cc PROPERTIES
    COMPILE_OPTIONS -fno-sanitize=thread
    COMPILE_DEFINITIONS SPARSEFW_THREAD_SANITIZER
    # The others' precompiled header is compiled with the sanitizer.
    SKIP_PRECOMPILE_HEADERS ON)
endif()

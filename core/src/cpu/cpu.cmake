# The CPU engine, a part of sparsefw::core: core.cmake compiles
# SPARSEFW_CPU_SOURCES and links SPARSEFW_CPU_LIBRARIES.
find_package(hwy CONFIG REQUIRED)
set(SPARSEFW_CPU_LIBRARIES hwy::hwy)
set(SPARSEFW_CPU_SOURCES
  cpu/cpu_backend.cc cpu/cpu_engine.cc cpu/float64_product.cc cpu/frank_wolfe.cc
  cpu/free_columns.cc cpu/gram_product.cc cpu/group_select.cc cpu/host_info.cc cpu/kernels.cc
  cpu/mask_loss.cc cpu/panel_kernels.cc cpu/reconstruct.cc cpu/relaxed_mask.cc cpu/rounding.cc
  cpu/row_conjugate_gradients.cc cpu/row_selector.cc cpu/row_wise.cc cpu/scaled_layer.cc
  cpu/swap_between_rows.cc cpu/swap_kernels.cc cpu/swap_refine.cc cpu/swap_row.cc
  cpu/vertex_update.cc cpu/whole_matrix_selector.cc cpu/widen.cc cpu/workers.cc)

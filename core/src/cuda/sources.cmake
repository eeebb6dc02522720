# What the CUDA engine consists of, but for its entry (module.cc) and the
# opening of cuBLAS.
set(SPARSEFW_CUDA_SOURCES
  cuda_backend.cc cuda_engine.cc cuda_status.cc dense_product.cc device_bytes.cc device_gram.cc
  device_layer.cc float64_product.cc frank_wolfe.cc frank_wolfe_memory.cc gram_accumulator.cc
  gram_sum.cu layer_kernels.cu mask_loss.cc raw_rows.cu reconstruct.cc reconstructed_rows.cu
  refresh.cu row_batch.cu row_conjugate_gradients.cc row_gradients.cu row_matching.cc select.cu
  shared_limit.cc staged_upload.cc stream.cc swap_between_rows.cu swap_groups.cu swap_refine.cc
  swap_setup.cu swap_sweep.cu toggle_history.cc vertex_tiles.cu vertex_update.cu widen.cu)

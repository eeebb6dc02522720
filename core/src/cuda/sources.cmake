# The sources of the CUDA engine but for its entry (module.cc) and the
# opening of cuBLAS and cuSOLVER (runtime/toolkit_libraries.cc).
set(SPARSEFW_CUDA_SOURCES
  iteration/frank_wolfe.cc iteration/frank_wolfe_state.cc iteration/refresh.cu
  iteration/toggle_history.cc iteration/vertex_update.cu
  joint/batch_search.cc joint/joint_border.cu joint/joint_build.cu joint/joint_factor.cu
  joint/joint_memory.cc joint/joint_pass.cu joint/joint_search.cc joint/joint_weights.cu
  linalg/float64_product.cc linalg/gram_accumulator.cc linalg/gram_sum.cu linalg/layer_kernels.cu
  linalg/mask_loss.cc linalg/raw_rows.cu linalg/symmetric_product.cc memory/device_buffer.cc
  memory/device_bytes.cc memory/device_gram.cc memory/device_layer.cc memory/staged_upload.cc
  prune/alps.cc prune/inverse_factor.cc prune/prune.cc prune/prune_kernels.cu prune/sparsegpt.cc
  prune/sweep_kernels.cu reconstruct/reconstruct.cc reconstruct/reconstruct_kernels.cu
  runtime/cuda_backend.cc runtime/cuda_engine.cc runtime/cuda_status.cc
  runtime/execution_context.cc runtime/shared_limit.cc runtime/use_device.cc select/select.cu
  select/select_scores.cu select/start_choice.cc swaps/row_matching.cu swaps/swap_between_rows.cu
  swaps/swap_groups.cu swaps/swap_refine.cc swaps/swap_setup.cu swaps/swap_sweep.cu)

# sparsefw-bench-smoke: linked with the CUDA engine's kernels, or with those of the emulated device.
set(SPARSEFW_SMOKE_SOURCES
  smoke.cc smoke_device.cc smoke_iterate.cc smoke_iteration.cc smoke_joint.cc smoke_program.cc
  smoke_prune.cc smoke_refine.cc
  ../layers/synthetic_layer.cc)
list(TRANSFORM SPARSEFW_SMOKE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

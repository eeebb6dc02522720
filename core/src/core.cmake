# The numeric library: validation, saliency, the solver and its engines.
include(cpu/cpu.cmake)        # sets SPARSEFW_CPU_SOURCES, SPARSEFW_CPU_LIBRARIES
include(solver/solver.cmake)  # sets SPARSEFW_SOLVER_SOURCES
include(sparsegpt/sparsegpt.cmake)  # sets SPARSEFW_SPARSEGPT_SOURCES

sparsefw_library(core
  SOURCES
    blas.cc finite.cc gram_accumulator.cc parallel.cc pattern.cc problem.cc saliency.cc
    selection.cc weights_loss.cc
    reference/reference_backend.cc reference/reference_engine.cc reference/reference_gram.cc
    reference/reference_reconstruct.cc reference/reference_refine.cc
    ${SPARSEFW_CPU_SOURCES} ${SPARSEFW_SOLVER_SOURCES} ${SPARSEFW_SPARSEGPT_SOURCES}
  LIBRARIES sparsefw::base absl::time absl::function_ref
  PRIVATE_LIBRARIES sparsefw::cblas TBB::tbb ${SPARSEFW_CPU_LIBRARIES} ${CMAKE_DL_LIBS})

# parallel.h says why.
if(SPARSEFW_SANITIZER STREQUAL "thread")
  set_source_files_properties(parallel.cc PROPERTIES
    COMPILE_OPTIONS -fno-sanitize=thread
    COMPILE_DEFINITIONS SPARSEFW_THREAD_SANITIZER)
endif()

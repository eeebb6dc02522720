// The layer that a measuring program runs on, read from a safetensors file.
#ifndef SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_LAYER_FILE_H_
#define SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_LAYER_FILE_H_

#include <memory>
#include <string>

#include "sparsefw/backend.h"
#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"
#include "sparsefw/safetensors.h"

namespace sparsefw::bench {

// Tensors "weight" [rows, cols] and "gram" [cols, cols], memory-mapped.
struct LayerFile {
  std::shared_ptr<const SafetensorsFile> file;
  ConstMatrixView weights;
  ConstMatrixView gram;
};
LayerFile OpenLayer(const std::string& path);

// The point that Frank-Wolfe starts from: Wanda's mask, and the fraction alpha
// of it with the highest scores fixed.
struct StartingPoint {
  Pattern pattern;
  Matrix<float> saliency;  // [rows, cols]
  Mask warm;
  Mask fixed;

  // Views of the layer and of this object.
  EngineProblem problem(const LayerFile& layer) const;
};
StartingPoint MakeStartingPoint(const LayerFile& layer, const Pattern& pattern, double alpha);

}  // namespace sparsefw::bench

#endif  // SPARSEFW_CORE_BENCHMARKS_PROGRAMS_LAYERS_LAYER_FILE_H_

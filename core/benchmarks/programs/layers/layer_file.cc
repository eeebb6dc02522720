#include "core/benchmarks/programs/layers/layer_file.h"

#include <cstdint>
#include <vector>

#include "core/benchmarks/programs/bench_program.h"
#include "sparsefw/saliency.h"

namespace sparsefw::bench {

LayerFile OpenLayer(const std::string& path) {
  LayerFile layer;
  layer.file = OrDie(SafetensorsFile::Open(path));
  layer.weights = OrDie(OrDie(layer.file->Find("weight"))->AsMatrix());
  layer.gram = OrDie(OrDie(layer.file->Find("gram"))->AsMatrix());
  return layer;
}

EngineProblem StartingPoint::problem(const LayerFile& layer) const {
  return {.weights = layer.weights,
          .gram = layer.gram,
          .pattern = pattern,
          .saliency = saliency.view(),
          .warm = &warm,
          .fixed = &fixed};
}

StartingPoint MakeStartingPoint(const LayerFile& layer, const Pattern& pattern, double alpha) {
  StartingPoint start;
  start.pattern = pattern;
  std::vector<double> diagonal(static_cast<size_t>(layer.gram.cols()));
  for (int64_t i = 0; i < layer.gram.cols(); ++i) {
    const DType dtype = layer.gram.dtype();
    ConvertToDouble(layer.gram.row_bytes(i) + static_cast<size_t>(i) * SizeOf(dtype), dtype, 1,
                    &diagonal[static_cast<size_t>(i)]);
  }
  start.saliency = OrDie(ComputeSaliency(layer.weights, diagonal, {}));
  start.warm = OrDie(TopScores(start.saliency.view(), pattern));
  start.fixed = OrDie(FixedSet(start.saliency.view(), start.warm, pattern, alpha));
  return start;
}

}  // namespace sparsefw::bench

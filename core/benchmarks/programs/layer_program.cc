// Writes a synthetic layer (synthetic_layer.h) that the other programs and the
// PyTorch program measure on.
//
//   sparsefw-bench-layer --rows R --cols C --out FILE [--seed 20] [--spectrum flat|decaying]
#include <string>

#include "core/benchmarks/programs/bench_program.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"

namespace sparsefw::bench {
namespace {

int Main(int argc, char** argv) {
  Flags flags(argc, argv);
  const int64_t rows = flags.Integer("rows", 0);
  const int64_t cols = flags.Integer("cols", 0);
  const auto seed = static_cast<uint64_t>(flags.Integer("seed", 20));
  const std::string path = flags.Required("out");
  const std::string spectrum = flags.Text("spectrum", "flat");
  flags.Finish();
  if (spectrum != "flat" && spectrum != "decaying") {
    Die("--spectrum must be flat or decaying; got \"" + spectrum + "\"");
  }

  OrDie(WriteLayer(path, OrDie(MakeSyntheticLayer(
                             rows, cols, seed,
                             spectrum == "decaying" ? Spectrum::kDecaying : Spectrum::kFlat))));
  return 0;
}

}  // namespace
}  // namespace sparsefw::bench

int main(int argc, char** argv) { return sparsefw::bench::Main(argc, argv); }

// The joint search by the engine, and the launches of one batch, timed.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/benchmarks/programs/layers/layer_file.h"
#include "core/benchmarks/programs/layers/synthetic_layer.h"
#include "core/benchmarks/programs/smoke/smoke.h"
#include "core/src/cuda/joint/joint_batch.h"
#include "core/src/cuda/linalg/padded_rows.h"
#include "sparsefw/joint.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::bench {
namespace {

struct Search {
  JointResult result;
  double start_loss = 0;
  double seconds = 0;
};

absl::StatusOr<Search> SearchFrom(const StartingPoint& start, const EngineProblem& problem) {
  Search search;
  SPARSEFW_ASSIGN_OR_RETURN(const Backend* backend, FindBackend("cuda"));
  SPARSEFW_ASSIGN_OR_RETURN(const auto engine,
                            backend->CreateEngine({.precision = Precision::kFloat32}));
  SPARSEFW_RETURN_IF_ERROR(engine->Load(problem));
  SPARSEFW_ASSIGN_OR_RETURN(const Matrix<float> weights, engine->Reconstruct(start.warm, {}));
  SPARSEFW_ASSIGN_OR_RETURN(search.start_loss, engine->LossOfWeights(weights));
  const JointRequest request = {
      .options = {.excluded = JointExcluded(start.pattern, JointAlpha(start.pattern))},
      .fixed = &start.fixed,
      .weights = &weights};
  const auto begin = std::chrono::steady_clock::now();
  SPARSEFW_ASSIGN_OR_RETURN(search.result, engine->SearchJointly(start.warm, request));
  search.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return search;
}

void TimeSearch(Smoke& smoke, const StartingPoint& start, const EngineProblem& problem,
                const std::string& pattern) {
  const std::string name = pattern + " joint search";
  smoke.Begin(name);
  const Search search = OrDie(SearchFrom(start, problem));
  smoke.Report(name, search.result.loss < search.start_loss,
               absl::StrFormat("%.3f s, %d exchanges, loss %.4f of the start's", search.seconds,
                               search.result.exchanges, search.result.loss / search.start_loss),
               {{"ms", search.seconds * 1e3}, {"exchanges", search.result.exchanges}});
}

// A batch of rows with the window of a pattern: of 25 columns nine are fixed, one is kept and one
// outside; or of four two are kept and one is outside.
class TimedBatch {
 public:
  TimedBatch(const SyntheticLayer& layer, bool groups)
      : stride_(cuda::StrideOf(layer.gram.cols())),
        gram_(Padded(layer.gram, layer.gram(0, 0))),
        memory_(OrDie(cuda::DeviceBuffer<unsigned char>::Create(
            cuda::BatchBytes<float>(layer.weights.rows(), layer.gram.cols()), nullptr))) {
    const int64_t cols = layer.gram.cols();
    const int64_t period = groups ? 4 : 25;
    const int64_t fixed = groups ? 0 : 9;
    const int64_t kept = groups ? 2 : 1;
    const int64_t unit = (cols + period - 1) / period;
    batch_.sizes = cuda::JointSizes::For(fixed * unit, kept * unit, unit);
    batch_.count = std::min(layer.weights.rows(),
                            cuda::RowsThatFit<float>(batch_.sizes, cols, memory_.size()));
    batch_.cols = cols;
    batch_.stride = stride_;
    batch_.group_cols = groups ? 4 : cols;
    batch_.gram = gram_.data();
    products_ = std::make_unique<DeviceValues<double>>(Products(layer));
    batch_.products = products_->data();
    cuda::LayOut(memory_.data(), batch_);
    for (int64_t index = 0; index < batch_.count; ++index) {
      Row(period, fixed, kept, index);
    }
  }

  const cuda::JointBatch<float>& batch() const { return batch_; }
  size_t rounded_bytes() const {
    return static_cast<size_t>(batch_.count * stride_) * sizeof(float);
  }
  // tolerance: what an exchange, or an excluded column, must gain.
  void Begin(double tolerance = 0) {
    for (cuda::JointRowProgress& row : progress_) row.tolerance = tolerance;
    Upload(columns_, batch_.columns);
    Upload(places_, batch_.places);
    Upload(progress_, batch_.rows);
    OrDie(cuda::LaunchBuild(batch_, nullptr));
  }

 private:
  static std::vector<float> Padded(const Matrix<float>& matrix, float unit) {
    const int64_t stride = cuda::StrideOf(matrix.cols());
    std::vector<float> padded(static_cast<size_t>(matrix.rows() * stride));
    for (int64_t row = 0; row < matrix.rows(); ++row) {
      std::transform(matrix.row(row), matrix.row(row) + matrix.cols(),
                     padded.begin() + row * stride, [unit](float value) { return value / unit; });
    }
    return padded;
  }
  std::vector<double> Products(const SyntheticLayer& layer) const {
    std::vector<double> products(static_cast<size_t>(batch_.count * stride_));
    for (int64_t row = 0; row < batch_.count; ++row) {
      for (int64_t j = 0; j < batch_.cols; ++j) {
        products[static_cast<size_t>(row * stride_ + j)] =
            static_cast<double>(layer.weights(row, j));
      }
    }
    return products;
  }
  void Row(int64_t period, int64_t fixed, int64_t kept, int64_t index) {
    const cuda::JointSizes& sizes = batch_.sizes;
    std::vector<int> columns(static_cast<size_t>(sizes.width()), -1);
    std::vector<int> places(static_cast<size_t>(stride_), cuda::kNoPlace);
    int64_t counts[3] = {};
    for (int64_t j = 0; j < batch_.cols; ++j) {
      const int64_t of = period == 4 ? j % 4 : (j + index) % period;
      auto& place = places[static_cast<size_t>(j)];
      const auto column = static_cast<int>(j);
      if (of < fixed) {
        columns[static_cast<size_t>(counts[0]++)] = column;
      } else if (of < fixed + kept) {
        place = static_cast<int>(counts[1]++);
        columns[static_cast<size_t>(sizes.fixed + place)] = column;
      } else if (of == fixed + kept) {
        place = static_cast<int>(sizes.kept + counts[2]++);
        columns[static_cast<size_t>(sizes.eliminated() + place)] = column;
      } else {
        place = cuda::kExcludedPlace;
      }
    }
    columns_.insert(columns_.end(), columns.begin(), columns.end());
    places_.insert(places_.end(), places.begin(), places.end());
    progress_.push_back({.loss = 1e9,
                         .tolerance = 0,
                         .exchanges = 0,
                         .pending = 0,
                         .done = 0,
                         .entering = 0,
                         .row = static_cast<int>(index)});
  }
  template <typename T>
  static void Upload(const std::vector<T>& from, T* to) {
    OrDie(cuda::ToStatus(
        cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, nullptr),
        "cudaMemcpyAsync"));
  }

  const int64_t stride_;
  DeviceValues<float> gram_;
  cuda::DeviceBuffer<unsigned char> memory_;
  std::unique_ptr<DeviceValues<double>> products_;
  cuda::JointBatch<float> batch_;
  std::vector<int> columns_;
  std::vector<int> places_;
  std::vector<cuda::JointRowProgress> progress_;
};

void TimeBatch(Smoke& smoke, const SyntheticLayer& layer, bool groups) {
  TimedBatch timed(layer, groups);
  const cuda::JointBatch<float>& batch = timed.batch();
  const std::string rows =
      absl::StrFormat(" of %d rows, %s", batch.count, groups ? "2:4" : "narrow window");
  const int64_t first = batch.sizes.room;
  const auto begin = [&] { timed.Begin(); };
  timed.Begin();
  smoke.Kernel("joint tableaus" + rows, {},
               [&](cudaStream_t stream) { return cuda::ToStatus(LaunchBuild(batch, stream)); });
  smoke.Kernel("joint pass" + rows, begin,
               [&](cudaStream_t stream) { return cuda::ToStatus(LaunchPass(batch, stream)); });
  smoke.Kernel("joint weights" + rows, begin,
               [&](cudaStream_t stream) { return cuda::ToStatus(LaunchWeights(batch, stream)); });
  // As if every excluded column paid.
  const auto begin_border = [&] {
    timed.Begin(-1e30);
    OrDie(LaunchWeights(batch, nullptr));
    OrDie(cuda::ToStatus(cudaMemsetAsync(batch.rounded, 0, timed.rounded_bytes(), nullptr),
                         "cudaMemsetAsync"));
    OrDie(LaunchAdmit(batch, cuda::kRoomOfRow, nullptr));
  };
  smoke.Kernel("joint admission" + rows, begin_border, [&](cudaStream_t stream) {
    return cuda::ToStatus(LaunchAdmit(batch, cuda::kRoomOfRow, stream));
  });
  smoke.Kernel("joint border" + rows, begin_border, [&](cudaStream_t stream) {
    return cuda::ToStatus(LaunchBorder(batch, first, cuda::kRoomOfRow, stream));
  });
}

}  // namespace

void SmokeJoint(Smoke& smoke, int64_t rows, int64_t cols) {
  const SyntheticLayer made = OrDie(MakeSyntheticLayer(rows, cols, 21));
  const LayerFile layer = {nullptr, made.weights.view(), made.gram.view()};
  for (const std::string pattern : {"per_row:0.6", "unstructured:0.6", "2:4"}) {
    const Pattern parsed = ParsePattern(pattern);
    const StartingPoint start = MakeStartingPoint(layer, parsed, JointAlpha(parsed));
    TimeSearch(smoke, start, start.problem(layer), pattern);
  }
  for (const bool groups : {false, true}) TimeBatch(smoke, made, groups);
}

}  // namespace sparsefw::bench

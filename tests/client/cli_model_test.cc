// The parts of prune-model: which tensors belong together, what is kept, what is written.
#include <gmock/gmock.h>

#include <array>
#include <filesystem>

#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/model/checkpoint.h"
#include "client/cpp/cli/model/layer_runner.h"
#include "client/cpp/cli/model/layers.h"
#include "client/cpp/cli/model/model_report.h"
#include "client/cpp/cli/model/output_folder.h"
#include "client/cpp/cli/model/run_state.h"
#include "sparsefw/mask.h"
#include "tests/client/client_fixture.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_folder.h"

namespace sparsefw::cli {
namespace {

TEST(ModelReportTest, NamesWhatStaysDense) {
  EXPECT_EQ(DenseNote({}), "");
  EXPECT_EQ(DenseNote({"a"}), "1 matrix without a Gram matrix stays dense: a");
  EXPECT_EQ(DenseNote({"a", "b", "c", "d", "e", "f"}),
            "6 matrices without a Gram matrix stay dense: a, b, c, d and 2 more");
}

using ::sparsefw::testing::StatusIs;
using ::sparsefw::testing::TempFolder;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class CliModelTest : public ::testing::Test {
 protected:
  static std::span<const std::byte> Bytes(const std::vector<float>& values) {
    return std::as_bytes(std::span(values));
  }
  static void Write(const std::string& path, const std::vector<SafetensorsTensor>& tensors) {
    SPARSEFW_ASSERT_OK(WriteSafetensors(path, tensors, {}));
  }
  // a.weight [2, 3] and b [3]; G of a.
  void SetUp() override {
    std::filesystem::create_directories(model_);
    Write(model_ + "/model.safetensors", {{"a.weight", DType::kF32, {2, 3}, Bytes(weight_)},
                                          {"b", DType::kF32, {3}, Bytes(row_)}});
    std::filesystem::create_directories(grams_);
    Write(grams_ + "/g.safetensors", {{"a", DType::kF32, {3, 3}, Bytes(gram_)}});
  }
  static RunState& Must(absl::StatusOr<std::unique_ptr<RunState>>& state) {
    EXPECT_TRUE(state.ok()) << state.status();
    return **state;
  }

  const TempFolder folder_;
  const std::string model_ = folder_.File("model");
  const std::string grams_ = folder_.File("grams");
  const std::vector<float> weight_ = {1, 2, 3, 4, 5, 6};
  const std::vector<float> row_ = {7, 8, 9};
  const std::vector<float> gram_ = {2, 0, 0, 0, 2, 0, 0, 0, 2};
};

TEST_F(CliModelTest, OffsetsAreThoseOfTheFile) {
  const auto checkpoint = Checkpoint::Open(model_);
  SPARSEFW_ASSERT_OK(checkpoint);
  const auto file = ReadWholeFile(model_ + "/model.safetensors");
  SPARSEFW_ASSERT_OK(file);
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    const auto bytes =
        std::span(*file).subspan(static_cast<size_t>(tensor.offset), tensor.entry->bytes.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tensor.entry->bytes.begin())) << name;
  }
}

TEST_F(CliModelTest, AStateIsOfOneRunAndOneProcess) {
  const std::string path = folder_.File("state");
  const Json facts = {{"settings", {{"alpha", 0.5}}}};
  std::string id;
  {
    auto state = RunState::Open(path, facts);
    id = Must(state).run_id();
    EXPECT_EQ(id.size(), 16u);
    EXPECT_THAT(RunState::Open(path, facts), StatusIs(kInvalid, "", "another process"));
    const auto none = (*state)->Find(3);
    SPARSEFW_ASSERT_OK(none);
    EXPECT_FALSE(none->has_value());
    SPARSEFW_ASSERT_OK((*state)->Keep(3, {true, {std::byte{7}}, {{"name", "a"}}}));
  }
  const auto other = RunState::Open(path, {{"settings", {{"alpha", 0.9}}}});
  EXPECT_THAT(other, StatusIs(kInvalid, "", "/settings/alpha was 0.5, is 0.9"));
  EXPECT_EQ(ExitCodeOf(other.status()), ExitCode::kUsage);
  auto again = RunState::Open(path, facts);
  EXPECT_EQ(Must(again).run_id(), id);
  const auto kept = (*again)->Find(3);
  SPARSEFW_ASSERT_OK(kept);
  ASSERT_TRUE(kept->has_value());
  EXPECT_TRUE((*kept)->has_weight);
  EXPECT_EQ((*kept)->data, std::vector<std::byte>{std::byte{7}});
  EXPECT_EQ((*kept)->facts["name"], "a");
}

TEST_F(CliModelTest, ZerosAreWhereTheMaskSaysSo) {
  const auto checkpoint = Checkpoint::Open(model_);
  SPARSEFW_ASSERT_OK(checkpoint);
  const auto layers = FindLayers(*checkpoint, grams_);
  SPARSEFW_ASSERT_OK(layers);
  ASSERT_EQ(layers->layers.size(), 1u);
  const ModelLayer& layer = layers->layers[0];
  EXPECT_EQ(layer.name, "a.weight");
  Mask mask(2, 3);
  mask.Set(0, 1, true);
  mask.Set(1, 2, true);
  LayerRecord record;
  record.data.assign(mask.bytes().begin(), mask.bytes().end());
  const auto bytes = PrunedBytes(layer, record);
  SPARSEFW_ASSERT_OK(bytes);
  const std::vector<float> expected = {0, 2, 0, 0, 0, 6};
  EXPECT_TRUE(std::equal(bytes->begin(), bytes->end(), Bytes(expected).begin()));
  record.has_weight = true;  // of another size
  EXPECT_THAT(PrunedBytes(layer, record), StatusIs(absl::StatusCode::kInternal, "", "a.weight"));
}

TEST_F(CliModelTest, AStoppedRunIsNotAFinishedOne) {
  const auto checkpoint = Checkpoint::Open(model_);
  SPARSEFW_ASSERT_OK(checkpoint);
  const auto layers = FindLayers(*checkpoint, grams_);
  SPARSEFW_ASSERT_OK(layers);
  auto state = RunState::Open(folder_.File("state"), Json::object());
  const client::testing::FakeServer server;
  const auto client = client::Client::Connect(server.address(), client::testing::FastOptions());
  SPARSEFW_ASSERT_OK(client);
  const LayerRunner::OnDone on_done = [](size_t, const LayerRecord&, bool, absl::Duration) {};
  const v1::JobSpec spec;
  LayerRunner runner(**client, *layers, spec, Must(state), on_done);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(runner.Run(2, stop), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_TRUE(server.jobs.created.empty());
}

TEST_F(CliModelTest, TheTableHasALineForEveryLayerAndOneForAll) {
  const Json losses = {{"full", 100.0},
                       {"warm_start", 10.0},
                       {"final", 8.0},
                       {"lower_bound", 4.0},
                       {"reconstructed", nullptr}};
  Json updated = losses;
  updated["reconstructed"] = 5.0;
  updated["lower_bound"] = 0.0;
  const std::vector<Json> layers = {
      {{"name", "a"}, {"shape", {2, 10}}, {"kept", 10}, {"losses", losses}},
      {{"name", "layers.b"}, {"shape", {10, 10}}, {"kept", 40}, {"losses", updated}}};
  const std::string table = ModelTable(layers);
  EXPECT_THAT(table,
              HasSubstr("a          2x10  50.00 %  8.00 %           20.00 %      50.00 %\n"));
  EXPECT_THAT(table,
              HasSubstr("layers.b  10x10  60.00 %  5.00 %           50.00 %            -\n"));
  EXPECT_THAT(table, HasSubstr("2 layers    120  58.33 %\n"));
  EXPECT_EQ(LayerNumbers(layers[1]), "loss 5.00 %, 50.00 % below warm start");
  // With a shrinkage the losses with G itself are shown.
  Json shrunk = layers[1];
  shrunk["losses"]["unshrunk"] = {{"full", 50.0}, {"warm_start", 4.0}, {"result", 3.0}};
  EXPECT_EQ(LayerNumbers(shrunk), "loss 6.00 %, 25.00 % below warm start");
  shrunk["losses"]["unshrunk"] = nullptr;
  EXPECT_EQ(LayerNumbers(shrunk), LayerNumbers(layers[1]));
}

}  // namespace
}  // namespace sparsefw::cli

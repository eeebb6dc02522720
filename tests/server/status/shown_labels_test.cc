#include <gmock/gmock.h>

#include "server/status/live_jobs.h"

namespace sparsefw::server {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ShownLabelsTest, LeavesOutThoseOfTheProgramItself) {
  const ShownLabels shown =
      ShowLabels({{"layer", "2.intermediate"}, {"sparsefw-cli.inputs", "delete"}});
  EXPECT_THAT(shown.labels, ElementsAre(Pair("layer", "2.intermediate")));
  EXPECT_EQ(shown.left_out, 0);
}

TEST(ShownLabelsTest, ManyLongLabelsAreCutToABudget) {
  std::map<std::string, std::string> labels;
  for (int i = 0; i < 62; ++i) {
    labels["k" + std::to_string(100 + i)] = std::string(256, 'x');
  }
  labels["a"] = "first";
  labels["z"] = "still fits";
  const ShownLabels shown = ShowLabels(labels);
  size_t bytes = 0;
  for (const auto& [key, value] : shown.labels) bytes += key.size() + value.size();
  EXPECT_LE(bytes, kShownLabelBytes);
  EXPECT_THAT(shown.labels, ElementsAre(Pair("a", "first"), Pair("k100", std::string(256, 'x')),
                                        Pair("z", "still fits")));
  EXPECT_EQ(shown.left_out, 61);
}

TEST(ShownLabelsTest, TheLongestLabelFits) {
  const ShownLabels shown = ShowLabels({{std::string(64, 'k'), std::string(256, 'v')}});
  EXPECT_EQ(shown.left_out, 0);
}

}  // namespace
}  // namespace sparsefw::server

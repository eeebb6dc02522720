#include "client/cpp/cli/output/sweep_result.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/flags/names.h"
#include "client/cpp/cli/output/format.h"
#include "client/cpp/cli/output/result.h"
#include "sparsefw/client/printable.h"

namespace sparsefw::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kColumns = 10;
using Line = std::array<std::string, kColumns>;

// Refinements of the mask: "swaps", "swaps, reconstruct", "-".
std::string Refinements(const v1::SweepPoint& point) {
  std::string text = point.swaps() ? "swaps" : "";
  if (point.reconstruct()) text += text.empty() ? "reconstruct" : ", reconstruct";
  if (point.joint()) text += text.empty() ? "joint" : ", joint";
  return text.empty() ? "-" : text;
}

std::string Share(double part, double whole) {
  return whole > 0 ? absl::StrFormat("%.3f %%", 100 * part / whole) : FormatLoss(part);
}

Line PointLine(const v1::SweepOutcome& outcome, int index, bool best) {
  const v1::SweepPoint& point = outcome.point();
  const bool uses_alpha = point.method() == v1::METHOD_SPARSEFW || point.swaps() || point.joint();
  Line line = {absl::StrFormat("%s%d", best ? "*" : " ", index),
               MethodName(point.method()),
               PatternName(point.pattern()),
               FormatPercent(SparsityOf(point.pattern())),
               uses_alpha ? absl::StrFormat("%g", point.alpha()) : "-",
               Refinements(point),
               "-",
               "-",
               "-",
               "-"};
  if (outcome.has_error()) return line;
  const v1::Losses& losses = outcome.result().losses();
  line[6] = Share(losses.mask(), losses.full());
  if (losses.has_reconstructed()) {
    line[7] = Share(losses.reconstructed(), losses.full());
  } else if (outcome.has_loss_with_new_weights()) {
    line[7] = Share(outcome.loss_with_new_weights(), losses.full());
  }
  if (losses.lower_bound() > 0) line[8] = Share(losses.lower_bound(), losses.full());
  line[9] = FormatPercent(outcome.result().relative_reduction());
  return line;
}

// One space between columns, so that a line fits a terminal; numbers to the right.
std::string Aligned(const Line& line, const std::array<size_t, kColumns>& widths, size_t columns) {
  std::string row;
  for (size_t i = 0; i < columns; ++i) {
    const std::string padding(widths[i] - line[i].size(), ' ');
    const bool number = i == 3 || i == 4 || i >= 6;
    if (i > 0) row += ' ';
    row += number ? padding + line[i] : line[i] + padding;
  }
  return row;
}

}  // namespace

v1::SweepPoint ResultPoint(const v1::Job& job) {
  const v1::JobResult& result = job.result();
  if (result.best_point() >= 0 && result.best_point() < result.sweep_size()) {
    return result.sweep(result.best_point()).point();
  }
  v1::SweepPoint point;
  point.set_method(job.spec().method());
  *point.mutable_pattern() = job.spec().pattern();
  point.set_alpha(job.spec().sparsefw().alpha());
  point.set_swaps(job.spec().refine().swaps());
  point.set_reconstruct(job.spec().reconstruct());
  point.set_joint(job.spec().refine().joint());
  return point;
}

Json SweepJson(const v1::Job& job) {
  Json points = Json::array();
  for (const v1::SweepOutcome& outcome : job.result().sweep()) {
    const v1::SweepPoint& point = outcome.point();
    Json json = Json{{"method", MethodName(point.method())},
                     {"pattern", PatternName(point.pattern())},
                     {"sparsity", SparsityOf(point.pattern())},
                     {"alpha", point.alpha()},
                     {"swaps", point.swaps()},
                     {"reconstruct", point.reconstruct()},
                     {"joint", point.joint()},
                     {"error", nullptr}};
    if (outcome.has_error()) {
      json["error"] = outcome.error().message();
    } else {
      json["loss"] = outcome.result().losses().mask();
      json["loss_with_new_weights"] = outcome.has_loss_with_new_weights()
                                          ? Json(outcome.loss_with_new_weights())
                                          : Json(nullptr);
      json["result"] = ResultNumbersJson(outcome.result());
    }
    points.push_back(std::move(json));
  }
  return points;
}

std::string SweepText(const v1::Job& job) {
  const v1::JobResult& result = job.result();
  std::vector<Line> lines = {{" point", "method", "pattern", "removed", "alpha", "then", "loss",
                              "new W'", "bound", "reduction"}};
  for (int index = 0; index < result.sweep_size(); ++index) {
    lines.push_back(PointLine(result.sweep(index), index, index == result.best_point()));
  }
  std::array<size_t, kColumns> widths{};
  for (const Line& line : lines) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text = Aligned(lines[0], widths, kColumns) + "\n";
  for (int index = 0; index < result.sweep_size(); ++index) {
    const v1::SweepOutcome& outcome = result.sweep(index);
    const Line& line = lines[static_cast<size_t>(index) + 1];
    // An error takes the place of the numbers.
    text += outcome.has_error()
                ? Aligned(line, widths, 6) +
                      "  failed: " + client::Printable(outcome.error().message()) + "\n"
                : Aligned(line, widths, kColumns) + "\n";
  }
  text += "* the result; loss, loss with new weights W' and bound in per cent of |WX|^2";
  const double shrinkage = job.spec().shrinkage();
  return text +
         (shrinkage > 0 ? absl::StrFormat(", all of G with shrinkage %g\n", shrinkage) : "\n");
}

}  // namespace sparsefw::cli

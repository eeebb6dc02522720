#include "client/cpp/cli/sweep_result.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cpp/cli/format.h"
#include "client/cpp/cli/names.h"
#include "client/cpp/cli/result.h"

namespace sparsefw::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kColumns = 9;
using Line = std::array<std::string, kColumns>;

// What it does to the mask of its method: "swaps", "swaps, reconstruct", "-".
std::string Refinements(const v1::SweepPoint& point) {
  std::string text = point.swaps() ? "swaps" : "";
  if (point.reconstruct()) text += text.empty() ? "reconstruct" : ", reconstruct";
  return text.empty() ? "-" : text;
}

Line PointLine(const v1::SweepOutcome& outcome, int index, bool best) {
  const v1::SweepPoint& point = outcome.point();
  const bool uses_alpha = point.method() == v1::SPARSEFW || point.swaps();
  Line line = {absl::StrFormat("%s%d", best ? "*" : " ", index),
               MethodName(point.method()),
               PatternName(point.pattern()),
               FormatPercent(SparsityOf(point.pattern())),
               uses_alpha ? absl::StrFormat("%g", point.alpha()) : "-",
               Refinements(point),
               "-",
               "-",
               "-"};
  if (outcome.has_error()) {
    line[6] = outcome.error().message();
    return line;
  }
  const v1::Losses& losses = outcome.result().losses();
  line[6] = FormatLoss(losses.has_reconstructed() ? losses.reconstructed() : losses.final());
  line[7] = FormatLoss(losses.lower_bound());
  line[8] = FormatPercent(outcome.result().relative_reduction());
  return line;
}

std::string Aligned(const std::vector<Line>& lines) {
  std::array<size_t, kColumns> widths{};
  for (const Line& line : lines) {
    // An error takes the rest of its line.
    const size_t filled = line[7] == "-" ? 6 : kColumns;
    for (size_t i = 0; i < filled; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row;
    for (size_t i = 0; i < kColumns; ++i) {
      row += absl::StrFormat("%-*s  ", static_cast<int>(widths[i]), line[i]);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
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
                     {"error", nullptr}};
    if (outcome.has_error()) {
      json["error"] = outcome.error().message();
    } else {
      json["result"] = ResultNumbersJson(outcome.result());
    }
    points.push_back(std::move(json));
  }
  return points;
}

std::string SweepText(const v1::Job& job) {
  std::vector<Line> lines = {
      {" point", "method", "pattern", "removed", "alpha", "then", "loss", "bound", "reduction"}};
  int index = 0;
  for (const v1::SweepOutcome& outcome : job.result().sweep()) {
    lines.push_back(PointLine(outcome, index, index == job.result().best_point()));
    ++index;
  }
  return Aligned(lines);
}

}  // namespace sparsefw::cli

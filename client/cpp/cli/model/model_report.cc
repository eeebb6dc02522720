#include "client/cpp/cli/model/model_report.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sparsefw/client/printable.h"

namespace sparsefw::cli {
namespace {

int64_t Weights(const Json& layer) {
  return layer["shape"][0].get<int64_t>() * layer["shape"][1].get<int64_t>();
}

std::optional<double> Number(const Json& losses, const char* name) {
  if (!losses.contains(name) || !losses[name].is_number()) return std::nullopt;
  return losses[name].get<double>();
}

std::optional<double> Loss(const Json& layer, const char* name) {
  return Number(layer["losses"], name);
}

// Full, warm start's and that of what is written, with G itself whatever the shrinkage.
struct Shown {
  std::optional<double> full, warm_start, written;
};

Shown ShownOf(const Json& layer) {
  const Json& losses = layer["losses"];
  if (losses.contains("unshrunk") && losses["unshrunk"].is_object()) {
    const Json& with_gram = losses["unshrunk"];
    return {Number(with_gram, "full"), Number(with_gram, "warm_start"),
            Number(with_gram, "result")};
  }
  const auto updated = Loss(layer, "reconstructed");
  return {Loss(layer, "full"), Loss(layer, "warm_start"), updated ? updated : Loss(layer, "final")};
}

// part / whole; "-" where there is none.
std::string Percent(std::optional<double> part, std::optional<double> whole) {
  if (!part || !whole || *whole <= 0) return "-";
  return absl::StrFormat("%.2f %%", 100 * *part / *whole);
}

std::string Below(const Json& layer) {
  const Shown shown = ShownOf(layer);
  if (!shown.warm_start || !shown.written) return "-";
  return Percent(*shown.warm_start - *shown.written, shown.warm_start);
}

std::string LossShare(const Json& layer) {
  const Shown shown = ShownOf(layer);
  return Percent(shown.written, shown.full);
}

std::string Certificate(const Json& layer) {
  const auto bound = Loss(layer, "lower_bound");
  if (!bound || *bound <= 0) return "-";
  return Percent(bound, Loss(layer, "final"));
}

using Line = std::array<std::string, 6>;

Line LineOf(const Json& layer) {
  const int64_t weights = Weights(layer), kept = layer["kept"].get<int64_t>();
  return {
      client::Printable(layer["name"].get<std::string>()),
      absl::StrFormat("%dx%d", layer["shape"][0].get<int64_t>(), layer["shape"][1].get<int64_t>()),
      Percent(static_cast<double>(weights - kept), static_cast<double>(weights)),
      LossShare(layer),
      Below(layer),
      Certificate(layer)};
}

}  // namespace

std::string LayerNumbers(const Json& layer) {
  return absl::StrFormat("loss %s, %s below warm start", LossShare(layer), Below(layer));
}

std::string DenseNote(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 4;
  if (names.empty()) return "";
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + std::min(kNamed, names.size()));
  std::string text = absl::StrFormat("%d %s without a Gram matrix %s dense: %s", names.size(),
                                     names.size() == 1 ? "matrix" : "matrices",
                                     names.size() == 1 ? "stays" : "stay",
                                     client::Printable(absl::StrJoin(first, ", ")));
  if (names.size() > kNamed) absl::StrAppendFormat(&text, " and %d more", names.size() - kNamed);
  return text;
}

int64_t KeptOf(const std::vector<Json>& layers) {
  int64_t kept = 0;
  for (const Json& layer : layers) kept += layer["kept"].get<int64_t>();
  return kept;
}

int64_t WeightsOf(const std::vector<Json>& layers) {
  int64_t weights = 0;
  for (const Json& layer : layers) weights += Weights(layer);
  return weights;
}

std::string ModelTable(const std::vector<Json>& layers) {
  std::vector<Line> lines = {
      {"layer", "shape", "removed", "loss", "below warm start", "certificate"}};
  for (const Json& layer : layers) lines.push_back(LineOf(layer));
  const int64_t weights = WeightsOf(layers);
  lines.push_back(
      {absl::StrFormat("%d layers", layers.size()), absl::StrFormat("%d", weights),
       Percent(static_cast<double>(weights - KeptOf(layers)), static_cast<double>(weights)), "", "",
       ""});
  std::array<size_t, 6> widths = {};
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row = line[0] + std::string(widths[0] - line[0].size(), ' ');
    for (size_t i = 1; i < line.size(); ++i) {
      row += "  " + std::string(widths[i] - line[i].size(), ' ') + line[i];
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace sparsefw::cli

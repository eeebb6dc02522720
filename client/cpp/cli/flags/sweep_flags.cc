#include "client/cpp/cli/flags/sweep_flags.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/flags/field_text.h"
#include "client/cpp/cli/flags/names.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

constexpr size_t kMaxPoints = 256;

// A point while its pattern is still in two parts.
struct Draft {
  v1::SweepPoint point;
  std::string pattern;
  std::optional<double> sparsity;
};

struct Axis {
  std::string key;
  std::vector<std::string> values;
};

// Every field of a point is a key, and so is the part of the pattern that is a number.
std::string SweepKeys() {
  std::vector<std::string> keys = {"sparsity"};
  const auto& point = *v1::SweepPoint::descriptor();
  for (int i = 0; i < point.field_count(); ++i) keys.push_back(point.field(i)->name());
  return absl::StrJoin(keys, ", ");
}

absl::Status Set(const std::string& key, const std::string& text, Draft& draft) {
  const std::string flag = "--sweep " + key;
  if (key == "pattern") {
    draft.pattern = text;
    return absl::OkStatus();
  }
  if (key == "sparsity") {
    SPARSEFW_ASSIGN_OR_RETURN(draft.sparsity, ParseShare(flag, text));
    return absl::OkStatus();
  }
  if (v1::SweepPoint::descriptor()->FindFieldByName(key) == nullptr) {
    return UsageError(
        absl::StrFormat("--sweep must be over one of %s; got \"%s\"", SweepKeys(), key));
  }
  return SetField(draft.point, key, flag, text);
}

absl::StatusOr<Axis> ParseAxis(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return UsageError(absl::StrFormat("--sweep must be KEY=VALUE[,VALUE...]; got \"%s\"", text));
  }
  return Axis{text.substr(0, equals), absl::StrSplit(text.substr(equals + 1), ',')};
}

absl::StatusOr<std::vector<Axis>> ParseAxes(const std::vector<std::string>& texts) {
  std::vector<Axis> axes;
  size_t points = 1;
  for (const std::string& text : texts) {
    SPARSEFW_ASSIGN_OR_RETURN(Axis axis, ParseAxis(text));
    for (const Axis& other : axes) {
      if (other.key != axis.key) continue;
      return UsageError(absl::StrFormat("--sweep %s is given twice", axis.key));
    }
    points *= axis.values.size();
    if (points > kMaxPoints) {
      return UsageError(
          absl::StrFormat("--sweep may have at most %d points; got %d", kMaxPoints, points));
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

}  // namespace

absl::StatusOr<v1::Sweep> ParseSweep(const SubmitFlags& flags) {
  SPARSEFW_ASSIGN_OR_RETURN(const std::vector<Axis> axes, ParseAxes(flags.sweep));
  std::vector<Draft> drafts(1);
  drafts[0].pattern = flags.pattern;
  drafts[0].sparsity = flags.sparsity;
  bool patterns = false;
  for (const Axis& axis : axes) {
    patterns |= axis.key == "pattern" || axis.key == "sparsity";
    std::vector<Draft> product;
    for (const Draft& draft : drafts) {
      for (const std::string& value : axis.values) {
        product.push_back(draft);
        SPARSEFW_RETURN_IF_ERROR(Set(axis.key, value, product.back()));
      }
    }
    drafts = std::move(product);
  }
  v1::Sweep sweep;
  for (Draft& draft : drafts) {
    if (patterns) {
      SPARSEFW_ASSIGN_OR_RETURN(*draft.point.mutable_pattern(),
                                ParsePattern(draft.pattern, draft.sparsity));
    }
    *sweep.add_points() = std::move(draft.point);
  }
  sweep.set_keep(flags.keep_all ? v1::Sweep::KEEP_ALL : v1::Sweep::KEEP_BEST);
  return sweep;
}

}  // namespace sparsefw::cli

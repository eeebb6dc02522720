#include "client/cpp/cli/output/progress_line.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string_view>

namespace sparsefw::cli {
namespace {

constexpr int kMinBar = 10;
constexpr int kMaxBar = 30;
constexpr std::string_view kGap = "  ";

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

int Width(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return !Continues(c); }));
}

// The first `width` code points.
std::string_view Cut(std::string_view text, int width) {
  size_t end = 0;
  while (end < text.size()) {
    if (!Continues(text[end]) && width-- == 0) break;
    ++end;
  }
  return text.substr(0, end);
}

std::string Bar(double share, int width, bool color) {
  const double clamped = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  const int done = static_cast<int>(clamped * width);
  std::string filled(static_cast<size_t>(done), '=');
  if (done > 0 && done < width) filled.back() = '>';
  if (color) filled = "\033[32m" + filled + "\033[0m";
  return "[" + filled + std::string(static_cast<size_t>(width - done), ' ') + "]";
}

int WidthOf(const std::vector<LineField>& fields) {
  return std::accumulate(fields.begin(), fields.end(), 0, [](int sum, const LineField& field) {
    return sum + Width(field.text) + static_cast<int>(kGap.size());
  });
}

}  // namespace

std::string FormatLine(const ProgressLine& line, int columns, bool color) {
  std::vector<LineField> fields = line.fields;
  bool bar = line.share.has_value();
  const int title = Width(line.title);
  // Each field and the bar count the gap in front of them.
  const auto used = [&] {
    return title + WidthOf(fields) + (bar ? kMinBar + 2 + static_cast<int>(kGap.size()) : 0);
  };
  const int available = columns + (title > 0 ? 0 : static_cast<int>(kGap.size()));
  while (used() > available && (bar || !fields.empty())) {
    const auto last =
        std::max_element(fields.begin(), fields.end(),
                         [](const LineField& a, const LineField& b) { return a.rank < b.rank; });
    if (bar && (last == fields.end() || last->rank <= kBarRank)) {
      bar = false;
    } else {
      fields.erase(last);
    }
  }
  std::string text = line.title;
  const auto add = [&text](std::string_view part) {
    if (!text.empty()) text += kGap;
    text += part;
  };
  if (bar) add(Bar(*line.share, std::min(kMaxBar, kMinBar + available - used()), color));
  for (const LineField& field : fields) add(field.text);
  return bar || !fields.empty() ? text : std::string(Cut(text, std::max(columns, 0)));
}

}  // namespace sparsefw::cli

// The layout of one live line of a terminal: a text, a bar, and the fields that fit.
#ifndef SPARSEFW_CLIENT_CLI_PROGRESS_LINE_H_
#define SPARSEFW_CLIENT_CLI_PROGRESS_LINE_H_

#include <optional>
#include <string>
#include <vector>

namespace sparsefw::cli {

struct LineField {
  std::string text;
  int rank = 0;  // of the fields that do not fit, those of the highest rank are left out first
};

struct ProgressLine {
  std::string title;            // in front of the bar; may be empty
  std::optional<double> share;  // of the bar, [0, 1]; unset: no bar
  std::vector<LineField> fields;
};

// The bar goes before fields of a lower rank than this one.
inline constexpr int kBarRank = 3;

// At most `columns` wide, without a line break. The title is cut where it does
// not fit alone. Widths are counted in UTF-8 code points. `color` paints the bar
// with ANSI sequences, which take no width.
std::string FormatLine(const ProgressLine& line, int columns, bool color);

}  // namespace sparsefw::cli

#endif  // SPARSEFW_CLIENT_CLI_PROGRESS_LINE_H_

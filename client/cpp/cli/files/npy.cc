#include "client/cpp/cli/files/npy.h"

#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/exit_code.h"
#include "sparsefw/dtype.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

// The same limit as that of safetensors: no framework has more dimensions.
constexpr size_t kMaxRank = 64;

absl::Status Invalid(std::string_view path, std::string_view rule) {
  return FileError(absl::StrFormat("%s: %s", path, rule));
}

// The text of the header: a literal of a Python dictionary.
class Header {
 public:
  Header(std::string_view path, std::string_view text) : path_(path), text_(text) {}

  // The value of `key` with what follows it: {'descr': '<f4', 'shape': (2, 3), }.
  absl::StatusOr<std::string_view> ValueOf(std::string_view key) const {
    const std::string quoted = absl::StrFormat("'%s':", key);
    const size_t at = text_.find(quoted);
    if (at == std::string_view::npos) {
      return Invalid(path_, absl::StrFormat("the header of a .npy file must say %s", key));
    }
    std::string_view value = text_.substr(at + quoted.size());
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    return value;
  }

  // "<f4".
  absl::StatusOr<std::string> Descr() const {
    SPARSEFW_ASSIGN_OR_RETURN(std::string_view value, ValueOf("descr"));
    const size_t end = value.find('\'', 1);
    if (value.empty() || value.front() != '\'' || end == std::string_view::npos) {
      return Invalid(path_, "the array must hold numbers of one kind; it holds fields");
    }
    return std::string(value.substr(1, end - 1));
  }

  absl::StatusOr<std::vector<int64_t>> Shape() const {
    SPARSEFW_ASSIGN_OR_RETURN(std::string_view value, ValueOf("shape"));
    const size_t end = value.find(')');
    if (value.empty() || value.front() != '(' || end == std::string_view::npos) return BadShape();
    std::vector<int64_t> shape;
    std::string_view rest = value.substr(1, end - 1);
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const std::string part(absl::StripAsciiWhitespace(absl::string_view(rest.data(), comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      int64_t dim = 0;
      if (part.empty() && rest.empty()) break;
      if (!absl::SimpleAtoi(part, &dim) || dim < 0 || shape.size() == kMaxRank) return BadShape();
      shape.push_back(dim);
    }
    return shape;
  }

 private:
  absl::Status BadShape() const {
    return Invalid(path_,
                   absl::StrFormat("the shape must be at most %d numbers of at least 0", kMaxRank));
  }

  const std::string_view path_;
  const std::string_view text_;
};

// The dtype's name in safetensors.
std::string DTypeNameOf(const std::string& descr) {
  static const auto* const kNames = new std::map<std::string, std::string>{
      {"<f4", "F32"}, {"<f2", "F16"}, {"<f8", "F64"}, {"|b1", "BOOL"}};
  const auto found = kNames->find(descr);
  return found == kNames->end() ? "NumPy's " + descr : found->second;
}

// Where the header begins and how long it is.
std::optional<std::pair<size_t, size_t>> HeaderPlace(std::span<const std::byte> file) {
  const size_t magic = kNpyMagic.size();
  if (file.size() < magic + 6) return std::nullopt;
  const auto version = static_cast<int>(file[magic]);
  if (version < 1 || version > 3) return std::nullopt;
  const size_t length_bytes = version == 1 ? 2 : 4;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    length |= static_cast<size_t>(file[magic + 2 + i]) << (8 * i);
  }
  const size_t begin = magic + 2 + length_bytes;
  if (length > file.size() - begin) return std::nullopt;
  return std::pair(begin, length);
}

// Nothing where it is beyond size_t.
std::optional<size_t> BytesOf(const std::vector<int64_t>& shape, size_t element) {
  size_t bytes = element;
  for (const int64_t dim : shape) {
    const auto size = static_cast<size_t>(dim);
    if (size > 0 && bytes > std::numeric_limits<size_t>::max() / size) return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<NpyArray> ParseNpy(std::string_view path, std::span<const std::byte> file) {
  const auto place = HeaderPlace(file);
  if (!place) {
    return Invalid(path, "must be a .npy file of version 1 to 3 whose header lies within the file");
  }
  const Header header(
      path,
      std::string_view(reinterpret_cast<const char*>(file.data()) + place->first, place->second));
  SPARSEFW_ASSIGN_OR_RETURN(const std::string descr, header.Descr());
  SPARSEFW_ASSIGN_OR_RETURN(const std::string_view order, header.ValueOf("fortran_order"));
  NpyArray array;
  SPARSEFW_ASSIGN_OR_RETURN(array.shape, header.Shape());
  array.dtype_name = DTypeNameOf(descr);
  array.bytes = file.subspan(place->first + place->second);
  const auto dtype = ParseDType(array.dtype_name);
  if (!dtype) return array;  // whoever reads it says which dtypes are allowed
  if (!order.starts_with("False") && array.shape.size() > 1) {
    return Invalid(path,
                   "the array must be row-major; it is in the order of Fortran: save "
                   "numpy.ascontiguousarray(x)");
  }
  const auto bytes = BytesOf(array.shape, SizeOf(*dtype));
  if (!bytes || *bytes != array.bytes.size()) {
    return Invalid(
        path,
        absl::StrFormat("shape [%s] of %s must fill the file; it has %d bytes after "
                        "the header",
                        absl::StrJoin(array.shape, ", "), array.dtype_name, array.bytes.size()));
  }
  return array;
}

}  // namespace sparsefw::cli

#include "core/src/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/src/io/safetensors_format.h"
#include "sparsefw/safetensors.h"

namespace sparsefw::io {
namespace {

// Takes the parser's events. Whatever does not belong where it stands ends the
// parse at once, so the nesting never gets deeper than tensor -> shape.
// The method names are those that nlohmann's sax_parse calls.
class HeaderReader {
 public:
  explicit HeaderReader(Header& header) : header_(header) {}

  const std::string& error() const { return error_; }

  bool start_object(size_t) {
    switch (place_) {
      case Place::kNothing:
        place_ = Place::kRoot;
        return true;
      case Place::kRoot:
        if (name_ == kMetadataName) {
          if (has_metadata_) return Fail("__metadata__ must be there once; got it twice");
          has_metadata_ = true;
          place_ = Place::kMetadata;
        } else {
          entry_ = HeaderEntry();
          entry_.name = name_;
          seen_ = {};
          place_ = Place::kTensor;
        }
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(std::string& text) {
    switch (place_) {
      case Place::kRoot:
        name_ = std::move(text);
        return true;
      case Place::kMetadata:
        metadata_key_ = std::move(text);
        return true;
      default:
        return SetField(text);
    }
  }

  bool end_object() {
    if (place_ == Place::kTensor) {
      const auto missing = static_cast<size_t>(std::ranges::find(seen_, false) - seen_.begin());
      if (missing < seen_.size()) {
        return FailTensor(absl::StrFormat("%s is missing", kFields[missing]));
      }
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::kRoot ? Place::kNothing : Place::kRoot;
    return true;
  }

  bool start_array(size_t) {
    if (place_ != Place::kTensor || field_ == Field::kDType) return Unexpected("an array");
    place_ = field_ == Field::kShape ? Place::kShape : Place::kOffsets;
    offsets_.clear();
    return true;
  }

  bool end_array() {
    if (place_ == Place::kOffsets) {
      if (offsets_.size() != 2) {
        return FailTensor(
            absl::StrFormat("data_offsets must be two numbers; got %d", offsets_.size()));
      }
      entry_.begin = offsets_[0];
      entry_.end = offsets_[1];
    }
    place_ = Place::kTensor;
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(metadata_key_, std::move(text)).second) {
        return Fail(absl::StrFormat("__metadata__ must not name a key twice; got %s twice",
                                    Quoted(metadata_key_)));
      }
      return true;
    }
    if (place_ == Place::kTensor && field_ == Field::kDType) {
      entry_.dtype_name = std::move(text);
      return true;
    }
    return Unexpected(absl::StrFormat("the string %s", Quoted(text)));
  }

  bool number_unsigned(uint64_t value) {
    if (!AmongNumbers() || value > static_cast<uint64_t>(INT64_MAX)) {
      return OtherNumber(absl::StrFormat("%d", value));
    }
    auto& numbers = place_ == Place::kShape ? entry_.shape : offsets_;
    const int64_t most = place_ == Place::kShape ? SafetensorsFile::kMaxRank : 2;
    if (static_cast<int64_t>(numbers.size()) == most) {
      return FailTensor(
          absl::StrFormat("%s must be at most %d numbers; got more", FieldName(), most));
    }
    numbers.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(int64_t value) { return OtherNumber(absl::StrFormat("%d", value)); }
  bool number_float(double, const std::string& text) { return OtherNumber(Quoted(text)); }

  bool null() { return Unexpected("null"); }
  bool boolean(bool value) { return Unexpected(value ? "true" : "false"); }
  bool binary(nlohmann::json::binary_t&) { return Unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
    // Cut: the message repeats the last token, which can be as long as the header.
    std::string detail(error.what());
    constexpr size_t kDetailBytes = 160;
    if (detail.size() > kDetailBytes) detail.resize(kDetailBytes);
    return Fail(absl::StrFormat("the header must be JSON in UTF-8; at byte %d of it: %s", position,
                                Quoted(detail)));
  }

 private:
  enum class Place { kNothing, kRoot, kTensor, kShape, kOffsets, kMetadata };
  enum class Field { kDType, kShape, kOffsets };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  bool SetField(const std::string& text) {
    const auto field = static_cast<size_t>(std::ranges::find(kFields, text) - kFields.begin());
    if (field == kFields.size()) {
      return FailTensor(
          absl::StrFormat("fields must be dtype, shape and data_offsets; got %s", Quoted(text)));
    }
    field_ = static_cast<Field>(field);
    if (std::exchange(seen_[field], true)) {
      return FailTensor(absl::StrFormat("%s must be there once; got it twice", text));
    }
    return true;
  }

  std::string_view FieldName() const { return kFields[static_cast<size_t>(field_)]; }
  bool AmongNumbers() const { return place_ == Place::kShape || place_ == Place::kOffsets; }

  // A number that is no count, or stands where none may.
  bool OtherNumber(std::string_view text) {
    return AmongNumbers() ? NotACount(text) : Unexpected(absl::StrFormat("the number %s", text));
  }
  bool NotACount(std::string_view value) {
    return FailTensor(
        absl::StrFormat("%s must be whole numbers from 0 to 2^63-1; got %s", FieldName(), value));
  }

  bool Unexpected(std::string_view what) {
    switch (place_) {
      case Place::kNothing:
        return Fail(absl::StrFormat("the header must be a JSON object; got %s", what));
      case Place::kRoot:
        return Fail(absl::StrFormat("%s must be an object; got %s", Quoted(name_), what));
      case Place::kMetadata:
        return Fail(absl::StrFormat("__metadata__ must hold strings; got %s for %s", what,
                                    Quoted(metadata_key_)));
      case Place::kTensor:
        return FailTensor(absl::StrFormat(
            "%s must be %s; got %s", FieldName(),
            field_ == Field::kDType ? "a string" : "an array of whole numbers", what));
      default:
        return NotACount(what);
    }
  }

  bool FailTensor(std::string_view rule) {
    return Fail(absl::StrFormat("tensor %s: %s", Quoted(entry_.name), rule));
  }
  bool Fail(std::string rule) {
    error_ = std::move(rule);
    return false;
  }

  Header& header_;
  std::string error_;
  Place place_ = Place::kNothing;
  Field field_ = Field::kDType;
  std::string name_;
  std::string metadata_key_;
  HeaderEntry entry_;
  std::vector<int64_t> offsets_;
  bool has_metadata_ = false;
  std::array<bool, kFields.size()> seen_ = {};
};

absl::Status IndexNames(std::string_view path, Header& header) {
  header.by_name.resize(header.entries.size());
  std::iota(header.by_name.begin(), header.by_name.end(), size_t{0});
  const auto name_of = [&](size_t i) -> const std::string& { return header.entries[i].name; };
  std::ranges::sort(header.by_name, {}, name_of);
  const auto twice = std::ranges::adjacent_find(header.by_name, {}, name_of);
  if (twice != header.by_name.end()) {
    return InvalidFile(path, absl::StrFormat("names must be unique; got tensor %s twice",
                                             Quoted(name_of(*twice))));
  }
  return absl::OkStatus();
}

absl::Status CheckEntry(std::string_view path, const HeaderEntry& entry, int64_t data_bytes) {
  const auto bits = BitsOfDType(entry.dtype_name);
  if (!bits) {
    return TensorError(path, entry.name,
                       absl::StrFormat("dtype must be one that safetensors knows; got %s",
                                       Quoted(entry.dtype_name)));
  }
  if (entry.begin > entry.end) {
    return TensorError(
        path, entry.name,
        absl::StrFormat("data_offsets must not decrease; got [%d, %d]", entry.begin, entry.end));
  }
  if (entry.end > data_bytes) {
    return TensorError(path, entry.name,
                       absl::StrFormat("data_offsets must end within the %d bytes of data that the "
                                       "file holds; got [%d, %d]",
                                       data_bytes, entry.begin, entry.end));
  }
  const auto bytes = TensorBytes(entry.shape, *bits);
  if (!bytes) {
    return TensorError(path, entry.name,
                       absl::StrFormat("shape %s of %s must be whole bytes below 2^63",
                                       ShapeText(entry.shape), entry.dtype_name));
  }
  if (*bytes != entry.end - entry.begin) {
    return TensorError(
        path, entry.name,
        absl::StrFormat("shape %s of %s must be %d bytes; got data_offsets [%d, %d], "
                        "%d bytes",
                        ShapeText(entry.shape), entry.dtype_name, *bytes, entry.begin, entry.end,
                        entry.end - entry.begin));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Header> ParseHeader(std::string_view path, std::string_view json) {
  // The parser would skip a byte order mark and blanks; the format does not.
  if (json.empty() || json.front() != '{') {
    return InvalidFile(path, absl::StrFormat("the header must be a JSON object and begin with {; "
                                             "got %s",
                                             Quoted(json.substr(0, 16))));
  }
  // The parser takes a NUL as the end of its input and would not see what follows.
  if (const size_t nul = json.find('\0'); nul != std::string_view::npos) {
    return InvalidFile(
        path, absl::StrFormat("the header must be JSON in UTF-8; byte %d of it is 0", nul + 1));
  }
  try {
    Header header;
    HeaderReader reader(header);
    if (!nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
      return InvalidFile(path, reader.error());
    }
    if (absl::Status status = IndexNames(path, header); !status.ok()) return status;
    return header;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: the header of %d bytes must fit into memory; there is too little", path, json.size()));
  }
}

absl::Status CheckLayout(std::string_view path, const Header& header, int64_t data_bytes) {
  for (const HeaderEntry& entry : header.entries) {
    if (absl::Status status = CheckEntry(path, entry, data_bytes); !status.ok()) return status;
  }
  std::vector<const HeaderEntry*> by_offset;
  by_offset.reserve(header.entries.size());
  for (const HeaderEntry& entry : header.entries) by_offset.push_back(&entry);
  std::ranges::sort(by_offset, {}, [](const HeaderEntry* entry) {
    return std::make_pair(entry->begin, entry->end);
  });
  int64_t expected = 0;
  for (const HeaderEntry* entry : by_offset) {
    if (entry->begin != expected) {
      return TensorError(
          path, entry->name,
          absl::StrFormat("data_offsets must %s; got [%d, %d] where the tensors before end at %d",
                          entry->begin < expected ? "not overlap" : "leave no hole", entry->begin,
                          entry->end, expected));
    }
    expected = entry->end;
  }
  if (expected != data_bytes) {
    return InvalidFile(path, absl::StrFormat("the tensors must fill the file; they end at byte %d "
                                             "of its %d bytes of data",
                                             expected, data_bytes));
  }
  return absl::OkStatus();
}

}  // namespace sparsefw::io

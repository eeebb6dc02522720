#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/src/io/safetensors_format.h"
#include "core/src/io/safetensors_header.h"
#include "sparsefw/reason.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

using io::FileError;
using io::InvalidFile;
using io::kLengthBytes;
using io::Quoted;
using io::ShapeText;

absl::Status EntryError(const SafetensorsEntry& entry, std::string_view rule, Reason reason) {
  return Invalid(reason, "%s: tensor %s: %s", entry.file, Quoted(entry.name), rule);
}

absl::StatusOr<std::span<const std::byte>> MapFile(const std::string& path) {
  // Not blocking: opening a named pipe would wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(path, "opened", errno);
  const absl::Cleanup closing = [fd] { close(fd); };
  struct stat info = {};
  if (fstat(fd, &info) != 0) return FileError(path, "examined", errno);
  if (S_ISDIR(info.st_mode)) {
    return InvalidFile(path, "must be a safetensors file; it is a directory");
  }
  if (!S_ISREG(info.st_mode)) return InvalidFile(path, "must be a regular file; it is none");
  if (info.st_size < kLengthBytes) {
    return InvalidFile(path, absl::StrFormat("must begin with the %d bytes of the header's length; "
                                             "the file is %d bytes long",
                                             kLengthBytes, info.st_size));
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return FileError(path, "mapped into memory", errno);
  return std::span(static_cast<const std::byte*>(data), size);
}

absl::StatusOr<int64_t> HeaderBytes(std::string_view path, std::span<const std::byte> bytes) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > static_cast<uint64_t>(SafetensorsFile::kMaxHeaderBytes)) {
    return InvalidFile(path,
                       absl::StrFormat("the header must be at most %d bytes; the file says %d",
                                       SafetensorsFile::kMaxHeaderBytes, length));
  }
  if (length > bytes.size() - kLengthBytes) {
    return InvalidFile(path, absl::StrFormat("the header must lie within the file; it is said to "
                                             "be %d bytes, the file is %d bytes long",
                                             length, bytes.size()));
  }
  return static_cast<int64_t>(length);
}

}  // namespace

SafetensorsFile::~SafetensorsFile() {
  if (!mapped_.empty()) munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
}

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path) {
  try {
    std::shared_ptr<SafetensorsFile> file(new SafetensorsFile);
    file->path_ = path;
    SPARSEFW_ASSIGN_OR_RETURN(file->mapped_, MapFile(path));
    SPARSEFW_ASSIGN_OR_RETURN(const int64_t header_bytes, HeaderBytes(path, file->mapped_));
    const auto data_begin = static_cast<size_t>(kLengthBytes + header_bytes);
    const std::string_view json(reinterpret_cast<const char*>(file->mapped_.data()) + kLengthBytes,
                                static_cast<size_t>(header_bytes));
    SPARSEFW_ASSIGN_OR_RETURN(io::Header header, io::ParseHeader(path, json));
    const std::span<const std::byte> data = file->mapped_.subspan(data_begin);
    SPARSEFW_RETURN_IF_ERROR(io::CheckLayout(path, header, static_cast<int64_t>(data.size())));

    file->entries_.reserve(header.entries.size());
    for (io::HeaderEntry& entry : header.entries) {
      file->entries_.push_back({std::move(entry.name), std::move(entry.dtype_name),
                                std::move(entry.shape),
                                data.subspan(static_cast<size_t>(entry.begin),
                                             static_cast<size_t>(entry.end - entry.begin)),
                                file->path_});
    }
    file->by_name_ = std::move(header.by_name);
    file->metadata_ = std::move(header.metadata);
    return file;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: the header must fit into memory; there is too little", path));
  }
}

absl::StatusOr<const SafetensorsEntry*> SafetensorsFile::Find(std::string_view name) const {
  const auto name_of = [&](size_t i) -> std::string_view { return entries_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  if (found != by_name_.end() && name_of(*found) == name) return &entries_[*found];
  if (name.empty() && entries_.size() == 1) return &entries_.front();

  constexpr size_t kListed = 10;
  std::vector<std::string> names;
  for (const size_t i : by_name_) {
    if (names.size() == kListed) {
      names.push_back(absl::StrFormat("and %d more", entries_.size() - kListed));
      break;
    }
    names.push_back(Quoted(entries_[i].name));
  }
  const std::string there = names.empty() ? "no tensor" : absl::StrJoin(names, ", ");
  if (name.empty() && !entries_.empty()) {
    return Invalid("TENSOR_AMBIGUOUS",
                   "%s: a tensor must be named in a file of several; it holds %s", path_, there);
  }
  return Refuse(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND",
                "%s: there is no tensor %s; it holds %s", path_, Quoted(name), there);
}

absl::StatusOr<DType> SafetensorsEntry::dtype() const {
  const auto parsed = ParseDType(dtype_name);
  if (parsed) return *parsed;
  return EntryError(
      *this, absl::StrFormat("dtype must be F32, F16, BF16, F64 or BOOL; got %s", dtype_name),
      "DTYPE_UNSUPPORTED");
}

absl::StatusOr<ConstMatrixView> SafetensorsEntry::AsMatrix() const {
  SPARSEFW_ASSIGN_OR_RETURN(const DType parsed, dtype());
  if (shape.size() != 2) {
    return EntryError(*this,
                      absl::StrFormat("must have two dimensions; got shape %s", ShapeText(shape)),
                      "SHAPE_MISMATCH");
  }
  if (reinterpret_cast<uintptr_t>(bytes.data()) % SizeOf(parsed) != 0) {
    return EntryError(*this,
                      absl::StrFormat("must begin at a multiple of %d bytes to be read as %s; save "
                                      "the file again with its header padded to 8 bytes",
                                      SizeOf(parsed), dtype_name),
                      "FILE_INVALID");
  }
  return ConstMatrixView(bytes.data(), parsed, shape[0], shape[1]);
}

}  // namespace sparsefw

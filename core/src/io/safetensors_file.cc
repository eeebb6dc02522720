#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/src/io/file_status.h"
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

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status EntryError(const SafetensorsEntry& entry, std::string_view rule, Reason reason) {
  return Invalid(reason, "%s: tensor %s: %s", entry.file, Quoted(entry.name), rule);
}

absl::StatusOr<std::span<const std::byte>> MapFile(const std::string& path) {
  // Not blocking: opening a named pipe would wait for a writer.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return FileError(path, "opened", errno);
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return FileError(path, "examined", errno);
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
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return FileError(path, "mapped into memory", errno);
  return std::span(static_cast<const std::byte*>(data), size);
}

absl::StatusOr<int64_t> HeaderBytes(std::string_view path, std::span<const std::byte> bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  }
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

struct SafetensorsFile::Impl {
  ~Impl() {
    if (!mapped.empty()) munmap(const_cast<std::byte*>(mapped.data()), mapped.size());
  }
  std::string path;
  std::span<const std::byte> mapped;
  std::vector<SafetensorsEntry> entries;
  std::vector<size_t> by_name;
  std::map<std::string, std::string> metadata;
};

SafetensorsFile::SafetensorsFile() : impl_(std::make_unique<Impl>()) {}
SafetensorsFile::~SafetensorsFile() = default;

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path) {
  try {
    std::shared_ptr<SafetensorsFile> file(new SafetensorsFile);
    Impl& impl = *file->impl_;
    impl.path = path;
    SPARSEFW_ASSIGN_OR_RETURN(impl.mapped, MapFile(path));
    SPARSEFW_ASSIGN_OR_RETURN(const int64_t header_bytes, HeaderBytes(path, impl.mapped));
    const auto data_begin = static_cast<size_t>(kLengthBytes + header_bytes);
    const std::string_view json(reinterpret_cast<const char*>(impl.mapped.data()) + kLengthBytes,
                                static_cast<size_t>(header_bytes));
    SPARSEFW_ASSIGN_OR_RETURN(io::Header header, io::ParseHeader(path, json));
    const std::span<const std::byte> data = impl.mapped.subspan(data_begin);
    SPARSEFW_RETURN_IF_ERROR(io::CheckLayout(path, header, static_cast<int64_t>(data.size())));

    impl.entries.reserve(header.entries.size());
    for (io::HeaderEntry& entry : header.entries) {
      impl.entries.push_back({std::move(entry.name), std::move(entry.dtype_name),
                              std::move(entry.shape),
                              data.subspan(static_cast<size_t>(entry.begin),
                                           static_cast<size_t>(entry.end - entry.begin)),
                              impl.path});
    }
    impl.by_name = std::move(header.by_name);
    impl.metadata = std::move(header.metadata);
    return file;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: the header must fit into memory; there is too little", path));
  }
}

const std::string& SafetensorsFile::path() const { return impl_->path; }
const std::vector<SafetensorsEntry>& SafetensorsFile::entries() const { return impl_->entries; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->metadata;
}

absl::StatusOr<const SafetensorsEntry*> SafetensorsFile::Find(std::string_view name) const {
  const std::vector<SafetensorsEntry>& entries = impl_->entries;
  const auto name_of = [&](size_t i) -> std::string_view { return entries[i].name; };
  const auto found = std::ranges::lower_bound(impl_->by_name, name, {}, name_of);
  if (found != impl_->by_name.end() && name_of(*found) == name) return &entries[*found];
  if (name.empty() && entries.size() == 1) return &entries.front();

  constexpr size_t kListed = 10;
  std::vector<std::string> names;
  for (const size_t i : impl_->by_name) {
    if (names.size() == kListed) {
      names.push_back(absl::StrFormat("and %d more", entries.size() - kListed));
      break;
    }
    names.push_back(Quoted(entries[i].name));
  }
  const std::string there = names.empty() ? "no tensor" : absl::StrJoin(names, ", ");
  if (name.empty() && !entries.empty()) {
    return Invalid("TENSOR_AMBIGUOUS",
                   "%s: a tensor must be named in a file of several; it holds %s", impl_->path,
                   there);
  }
  return Refuse(absl::StatusCode::kNotFound, "TENSOR_NOT_FOUND",
                "%s: there is no tensor %s; it holds %s", impl_->path, Quoted(name), there);
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

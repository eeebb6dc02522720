#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/src/io/safetensors_format.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/status_macros.h"

namespace sparsefw {
namespace {

using io::FileError;
using io::InvalidFile;
using io::Quoted;
using io::ShapeText;
using io::TensorError;

// A file that is gone again unless it was put in its place.
class TemporaryFile {
 public:
  // Beside the target: a rename does not cross file systems. Unless `named`, without a name where
  // the file system has such files: then nothing is left of a program that is killed.
  static absl::StatusOr<TemporaryFile> Create(const std::string& target, bool named) {
    TemporaryFile file;
    // Not mkstemp: the result has the permissions of any new file of this user.
    if (!named) file.fd_ = open(FolderOf(target).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (file.fd_ >= 0) return file;
    SPARSEFW_RETURN_IF_ERROR(file.TakeName(target, [&file](const char* name) {
      file.fd_ = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      return file.fd_ >= 0;
    }));
    return file;
  }

  TemporaryFile(TemporaryFile&& other) noexcept
      : path_(std::exchange(other.path_, {})), fd_(std::exchange(other.fd_, -1)) {}
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (!path_.empty()) unlink(path_.c_str());
  }

  absl::Status Append(const std::string& target, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(fd_, bytes.data(), bytes.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return FileError(target, "written", errno);
      }
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  // On disk before it gets its name: after a crash the name never stands for a
  // half-written file. False: the file has no name and gets none, as some network file systems and
  // confinements have it, and machines without /proc.
  absl::StatusOr<bool> MoveTo(const std::string& target) {
    if (fsync(fd_) != 0) return FileError(target, "written", errno);
    const std::string own = absl::StrFormat("/proc/self/fd/%d", fd_);
    const auto link = [&own](const char* name) {
      return linkat(AT_FDCWD, own.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
    };
    if (path_.empty() && !TakeName(target, link).ok()) return false;
    if (close(std::exchange(fd_, -1)) != 0) return FileError(target, "written", errno);
    std::error_code error;
    std::filesystem::rename(path_, target, error);
    if (error) return FileError(target, "replaced", error.value());
    path_.clear();
    SPARSEFW_RETURN_IF_ERROR(SyncFolder(target));
    return true;
  }

 private:
  TemporaryFile() = default;

  static std::filesystem::path FolderOf(const std::string& target) {
    const std::filesystem::path folder = std::filesystem::path(target).parent_path();
    return folder.empty() ? "." : folder;
  }

  // A name that `make` finds free; it sets errno.
  absl::Status TakeName(const std::string& target, absl::FunctionRef<bool(const char*)> make) {
    while (true) {
      uint64_t random = 0;
      if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        return FileError(target, "written", errno);
      }
      // Not built from the target's name, which may be as long as names can be.
      std::string name =
          (FolderOf(target) / absl::StrFormat(".sparsefw-%016x.tmp", random)).string();
      if (make(name.c_str())) {
        path_ = std::move(name);
        return absl::OkStatus();
      }
      if (errno != EEXIST) return FileError(target, "written", errno);
    }
  }

  static absl::Status SyncFolder(const std::string& target) {
    const std::filesystem::path folder = FolderOf(target);
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // A folder that may be written but not read cannot be synced; the file is whole.
    if (fd < 0) return absl::OkStatus();
    const int result = fsync(fd);
    const int error = errno;
    close(fd);
    // Some file systems cannot sync a folder, and say so.
    if (result != 0 && error != EINVAL && error != EROFS) {
      return FileError(target, "made durable", error);
    }
    return absl::OkStatus();
  }

  std::string path_;
  int fd_ = -1;
};

absl::Status CheckTensors(const std::string& path, std::span<const SafetensorsTensor> tensors) {
  std::set<std::string_view> names;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.name == io::kMetadataName) {
      return InvalidFile(path,
                         "a tensor must not be named \"__metadata__\"; the format reserves it");
    }
    if (!names.insert(tensor.name).second) {
      return InvalidFile(
          path, absl::StrFormat("names must be unique; got tensor %s twice", Quoted(tensor.name)));
    }
    if (static_cast<int64_t>(tensor.shape.size()) > SafetensorsFile::kMaxRank) {
      return TensorError(path, tensor.name,
                         absl::StrFormat("shape must be at most %d numbers; got %d",
                                         SafetensorsFile::kMaxRank, tensor.shape.size()));
    }
    const auto bytes =
        io::TensorBytes(tensor.shape, static_cast<int64_t>(8 * SizeOf(tensor.dtype)));
    if (!bytes) {
      return TensorError(path, tensor.name,
                         absl::StrFormat("shape %s of %s must be from 0 to 2^63-1 bytes",
                                         ShapeText(tensor.shape), DTypeName(tensor.dtype)));
    }
    if (static_cast<size_t>(*bytes) != tensor.bytes.size()) {
      return TensorError(
          path, tensor.name,
          absl::StrFormat("shape %s of %s must be %d bytes; got %d", ShapeText(tensor.shape),
                          DTypeName(tensor.dtype), *bytes, tensor.bytes.size()));
    }
  }
  return absl::OkStatus();
}

// Throws nlohmann's type_error for text that is not UTF-8.
std::string Json(const std::string& text) { return nlohmann::json(text).dump(); }

// `bytes`: of the header, or of the texts in it, which are never longer than it.
absl::Status CheckHeaderBytes(const std::string& path, size_t bytes) {
  if (bytes <= static_cast<size_t>(SafetensorsFile::kMaxHeaderBytes)) return absl::OkStatus();
  return InvalidFile(path, absl::StrFormat("the header must be at most %d bytes; got %d",
                                           SafetensorsFile::kMaxHeaderBytes, bytes));
}

absl::StatusOr<std::string> HeaderText(const std::string& path,
                                       const std::vector<const SafetensorsTensor*>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  size_t texts = 0;
  for (const auto& [key, value] : metadata) texts += key.size() + value.size();
  for (const SafetensorsTensor* tensor : tensors) texts += tensor->name.size();
  SPARSEFW_RETURN_IF_ERROR(CheckHeaderBytes(path, texts));  // before they are escaped

  std::string header = "{";
  std::string_view between;
  try {
    if (!metadata.empty()) {
      header += Json(std::string(io::kMetadataName)) + ":{";
      for (const auto& [key, value] : metadata) {
        header += std::string(std::exchange(between, ",")) + Json(key) + ":" + Json(value);
      }
      header += "}";
    }
    size_t offset = 0;
    for (const SafetensorsTensor* tensor : tensors) {
      const size_t end = offset + tensor->bytes.size();
      header +=
          absl::StrFormat(R"(%s%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]})",
                          std::exchange(between, ","), Json(tensor->name), DTypeName(tensor->dtype),
                          absl::StrJoin(tensor->shape, ","), offset, end);
      offset = end;
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidFile(
        path, absl::StrFormat("names and metadata must be UTF-8; %s", Quoted(error.what())));
  }
  header += "}";
  // The data begins at a multiple of 8.
  header.append((8 - header.size() % 8) % 8, ' ');
  SPARSEFW_RETURN_IF_ERROR(CheckHeaderBytes(path, header.size()));
  return header;
}

// The kernel follows as many links.
constexpr int kMostLinks = 40;

bool InFolderOfDescriptors(const std::filesystem::path& file) {
  std::error_code error;
  const auto folder = std::filesystem::weakly_canonical(file.parent_path(), error);
  return folder.filename() == "fd" && folder.string().starts_with("/proc/");
}

// A rename would replace a device such as /dev/null for the whole machine, or the file that an open
// descriptor (/dev/stdout) stands for.
absl::Status CheckTarget(const std::string& path) {
  if (IsDescriptor(path)) {
    return InvalidFile(path, "must be a regular file to write to; it is an open descriptor");
  }
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : FileError(path, "written", errno);
  }
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  return InvalidFile(path, S_ISDIR(info.st_mode)
                               ? "must be a file to write to; it is a directory"
                               : "must be a regular file to write to; it is none");
}

// False: with `named`, it can be written.
absl::StatusOr<bool> WriteParts(const std::string& path,
                                std::span<const std::span<const std::byte>> parts, bool named) {
  const std::string target = FileBehindLinks(path);
  SPARSEFW_ASSIGN_OR_RETURN(TemporaryFile file, TemporaryFile::Create(target, named));
  for (const std::span<const std::byte> part : parts) {
    SPARSEFW_RETURN_IF_ERROR(file.Append(path, part));
  }
  return file.MoveTo(target);
}

absl::Status Write(const std::string& path, std::span<const SafetensorsTensor> tensors,
                   const std::map<std::string, std::string>& metadata) {
  SPARSEFW_RETURN_IF_ERROR(CheckTensors(path, tensors));
  std::vector<const SafetensorsTensor*> ordered;
  for (const SafetensorsTensor& tensor : tensors) ordered.push_back(&tensor);
  std::ranges::stable_sort(ordered, std::ranges::greater{},
                           [](const SafetensorsTensor* tensor) { return SizeOf(tensor->dtype); });
  SPARSEFW_ASSIGN_OR_RETURN(const std::string header, HeaderText(path, ordered, metadata));
  SPARSEFW_RETURN_IF_ERROR(CheckTarget(path));

  const uint64_t length = header.size();
  static_assert(sizeof(length) == io::kLengthBytes);
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(&length, 1)),
                                                   std::as_bytes(std::span(header))};
  for (const SafetensorsTensor* tensor : ordered) parts.push_back(tensor->bytes);
  SPARSEFW_ASSIGN_OR_RETURN(const bool written, WriteParts(path, parts, /*named=*/false));
  return written ? absl::OkStatus() : WriteParts(path, parts, /*named=*/true).status();
}

}  // namespace

std::string FileBehindLinks(const std::string& path) {
  std::filesystem::path file = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && !InFolderOfDescriptors(file); ++i) {
    const std::filesystem::path link = std::filesystem::read_symlink(file, error);
    if (error) break;
    file = file.parent_path() / link;
  }
  return file.string();
}

bool IsDescriptor(const std::string& path) { return InFolderOfDescriptors(FileBehindLinks(path)); }

absl::Status WriteSafetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  try {
    return Write(path, tensors, metadata);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: the header must fit into memory; there is too little", path));
  }
}

}  // namespace sparsefw

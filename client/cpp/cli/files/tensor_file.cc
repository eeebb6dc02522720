#include "client/cpp/cli/files/tensor_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/cli/exit_code.h"
#include "client/cpp/cli/files/mapped_file.h"
#include "client/cpp/cli/files/npy.h"
#include "sparsefw/safetensors.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::cli {
namespace {

constexpr std::string_view kZip = "PK\x03\x04";
// Where the name of a zip archive's first member is, and how long it is.
constexpr size_t kZipNameLength = 26;
constexpr size_t kZipName = 30;
// A pickle, which PyTorch before 1.6 wrote.
constexpr std::string_view kPickle = "\x80\x02";
constexpr std::string_view kPointer = "version https://git-lfs";

// At most 512; none where the file cannot be read, which opening it reports.
std::string FirstBytes(const std::string& path) {
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return "";
  const auto bytes = (*file)->bytes().first(std::min<size_t>((*file)->bytes().size(), 512));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string FirstMember(std::string_view zip) {
  if (zip.size() < kZipName) return "";
  const auto byte = [zip](size_t at) { return static_cast<unsigned char>(zip[at]); };
  const size_t length = byte(kZipNameLength) | static_cast<size_t>(byte(kZipNameLength + 1)) << 8;
  return std::string(zip.substr(kZipName, length));
}

// As one word of a shell.
std::string Word(std::string_view text) {
  return "'" + absl::StrReplaceAll(absl::string_view(text.data(), text.size()), {{"'", "'\\''"}}) +
         "'";
}

std::string With(const std::string& path, std::string_view extension) {
  const size_t dot = path.rfind('.');
  const size_t slash = path.rfind('/');
  const bool has_one = dot != std::string::npos && (slash == std::string::npos || dot > slash + 1);
  return path.substr(0, has_one ? dot : path.size()) + std::string(extension);
}

absl::Status Archive(const std::string& path, const std::string& tensor, std::string member) {
  member.resize(member.size() - std::string_view(".npy").size());
  return FileError(absl::StrFormat(
      "%s: is a .npz archive, which this program does not read; convert it: python3 -c 'import "
      "sys, numpy; numpy.save(sys.argv[3], numpy.load(sys.argv[1])[sys.argv[2]])' %s %s %s",
      path, Word(path), Word(tensor.empty() ? member : tensor), Word(With(path, ".npy"))));
}

absl::Status TorchFile(const std::string& path) {
  return FileError(absl::StrFormat(
      "%s: is a file of torch.save, which this program does not read; convert it: python3 -c "
      "'import sys, torch, safetensors.torch as s; x = torch.load(sys.argv[1], \"cpu\", "
      "weights_only=True); x = {\"x\": x} if torch.is_tensor(x) else x; s.save_file({k: "
      "v.clone(memory_format=torch.contiguous_format) for k, v in x.items()}, sys.argv[2])' %s %s",
      path, Word(path), Word(With(path, ".safetensors"))));
}

absl::StatusOr<FileTensor> OpenNpy(const std::string& path, const std::string& tensor) {
  if (!tensor.empty()) {
    return FileError(
        absl::StrFormat("%s: a .npy file has one array without a name; got \":%s\"", path, tensor));
  }
  SPARSEFW_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  SPARSEFW_ASSIGN_OR_RETURN(NpyArray array, ParseNpy(path, file->bytes()));
  FileTensor found;
  found.dtype_name = std::move(array.dtype_name);
  found.shape = std::move(array.shape);
  found.bytes = array.bytes;
  found.file = std::move(file);
  return found;
}

// A length that no header has and not its brace, but the first letters of a text, say.
bool HasNoHeader(std::string_view first) {
  uint64_t length = 0;
  if (first.size() <= sizeof(length) || first[sizeof(length)] == '{') return false;
  std::memcpy(&length, first.data(), sizeof(length));
  return length > static_cast<uint64_t>(SafetensorsFile::kMaxHeaderBytes);
}

absl::Status NoTensorFile(const std::string& path, std::string_view first) {
  return FileError(absl::StrFormat("%s: must be a safetensors or .npy file; it is %s", path,
                                   first.starts_with(kPointer)
                                       ? "a pointer of Git LFS; `git lfs pull` gets the file itself"
                                       : "neither"));
}

absl::StatusOr<FileTensor> OpenSafetensors(const std::string& path, const std::string& tensor) {
  auto file = SafetensorsFile::Open(path);
  if (!file.ok()) return FileError(file.status());
  const auto entry = (*file)->Find(tensor);
  if (!entry.ok()) return FileError(entry.status());
  return FileTensor{(*entry)->name,  (*entry)->dtype_name, (*entry)->shape,
                    (*entry)->bytes, (*file)->metadata(),  *file};
}

}  // namespace

absl::StatusOr<FileTensor> OpenTensor(const std::string& path, const std::string& tensor) {
  const std::string first = FirstBytes(path);
  if (first.starts_with(kNpyMagic)) return OpenNpy(path, tensor);
  if (first.starts_with(kZip)) {
    std::string member = FirstMember(first);
    return member.ends_with(".npy") ? Archive(path, tensor, std::move(member)) : TorchFile(path);
  }
  if (first.starts_with(kPickle)) return TorchFile(path);
  if (HasNoHeader(first)) return NoTensorFile(path, first);
  return OpenSafetensors(path, tensor);
}

}  // namespace sparsefw::cli

// The spool on a real file system.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/net/descriptor.h"
#include "server/tensors/spool/file_remover.h"
#include "server/tensors/spool/spool.h"
#include "sparsefw/reason.h"
#include "sparsefw/status_macros.h"

namespace sparsefw::server {
namespace {

constexpr char kLockName[] = "lock";
constexpr char kOwnerName[] = "owner";  // of what store
constexpr char kNewOwnerName[] = "owner.new";
constexpr size_t kMostOwnerBytes = 128;
constexpr int64_t kReservedBytes = int64_t{64} << 10;
constexpr int64_t kWritebackBytes = int64_t{8} << 20;
constexpr std::string_view kKeptSuffix = ".tensor";
constexpr std::string_view kPartSuffix = ".part";
constexpr std::string_view kDeletedSuffix = ".deleted";

absl::Status SpoolError(std::string_view what, std::string_view action, int error) {
  const std::string message =
      absl::StrFormat("%s: cannot be %s: %s", what, action, std::system_category().message(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return WithReason(absl::ResourceExhaustedError(message), "SPOOL_FULL");
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return WithReason(absl::UnavailableError(message), "SPOOL_FAILED");
    case EACCES:
    case EPERM:
    case EROFS:
      return WithReason(absl::PermissionDeniedError(message), "SPOOL_FAILED");
    default:
      return WithReason(absl::InternalError(message), "SPOOL_FAILED");
  }
}

// The error of a file in the folder, in answer to a client: it does not learn where the folder is.
// That the folder can be written was checked at the start, so no error here is the client's lack of
// permission.
absl::Status FileError(std::string_view action, int error) {
  return SpoolError("a file of the spool", action, error == EACCES || error == EPERM ? EIO : error);
}

// Whatever a record says, no file outside of the folder is touched.
absl::StatusOr<std::string> NameOfFile(std::string_view id, std::string_view suffix) {
  if (IsId(id)) return std::string(id) + std::string(suffix);
  return Refuse(absl::StatusCode::kInternal, "SPOOL_FAILED",
                "a file of the spool must be named by an id; got \"%s\"", id);
}

// Nothing: the file is not ours.
std::optional<SpoolEntry::Kind> KindOf(std::string_view name) {
  if (name.size() <= kIdLength || !IsId(name.substr(0, kIdLength))) return std::nullopt;
  const std::string_view suffix = name.substr(kIdLength);
  if (suffix == kKeptSuffix) return SpoolEntry::Kind::kKept;
  if (suffix == kPartSuffix) return SpoolEntry::Kind::kPart;
  if (suffix == kDeletedSuffix) return SpoolEntry::Kind::kDeleted;
  return std::nullopt;
}

struct Folder {
  Descriptor fd;
  Descriptor lock;  // released by the kernel when it is closed, however the program ends
  std::unique_ptr<FileRemover> remover = std::make_unique<FileRemover>();
};

// Lets the kernel write finished blocks of the file to the disk while the next
// ones arrive, so that the sync at the end has little left to wait for. A hint:
// an error of the disk shows in that sync.
void StartWriteback(int fd, int64_t begin, int64_t end) {
  const int64_t first = begin / kWritebackBytes * kWritebackBytes;
  const int64_t last = end / kWritebackBytes * kWritebackBytes;
  if (last > first) (void)sync_file_range(fd, first, last - first, SYNC_FILE_RANGE_WRITE);
}

class FolderFile final : public SpoolFile {
 public:
  FolderFile(std::shared_ptr<const Folder> folder, std::string name, int64_t size)
      : folder_(std::move(folder)), name_(std::move(name)), size_(size) {}
  // The folder may have made it a part again.
  void Remove() override {
    const std::string id = name_.substr(0, kIdLength);
    for (const std::string_view suffix : {kKeptSuffix, kPartSuffix}) {
      (void)folder_->remover->Remove(folder_->fd.get(), id + std::string(suffix));
    }
  }

  void Keep() override {
    if (name_.ends_with(kKeptSuffix)) return;
    const std::string kept = name_.substr(0, kIdLength) + std::string(kKeptSuffix);
    const int fd = folder_->fd.get();
    if (renameat(fd, name_.c_str(), fd, kept.c_str()) == 0) name_ = kept;
  }

  absl::Status Write(int64_t offset, std::span<const std::byte> bytes) override {
    const Descriptor fd(Open(O_WRONLY));
    if (!fd.ok()) return FileError("opened", errno);
    const int64_t begin = offset;
    bool waited = false;  // for blocks of files that were removed
    while (!bytes.empty()) {
      const ssize_t written = pwrite(fd.get(), bytes.data(), bytes.size(), offset);
      if (written < 0) {
        if (errno == EINTR) continue;
        if (errno != ENOSPC || waited) return FileError("written", errno);
        folder_->remover->Wait();
        waited = true;
        continue;
      }
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += written;
    }
    StartWriteback(fd.get(), begin, offset);
    return absl::OkStatus();
  }

  absl::Status Read(int64_t offset, std::span<std::byte> bytes) const override {
    const Descriptor fd(Open(O_RDONLY));
    if (!fd.ok()) return FileError("opened", errno);
    while (!bytes.empty()) {
      const ssize_t count = pread(fd.get(), bytes.data(), bytes.size(), offset);
      if (count < 0) {
        if (errno == EINTR) continue;
        return FileError("read", errno);
      }
      if (count == 0) return FileError("read to its end", EIO);
      bytes = bytes.subspan(static_cast<size_t>(count));
      offset += count;
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    const Descriptor fd(Open(O_WRONLY));
    if (!fd.ok()) return FileError("opened", errno);
    if (fdatasync(fd.get()) != 0) return FileError("synced", errno);
    if (entry_synced_.load(std::memory_order_relaxed)) return absl::OkStatus();
    if (fsync(folder_->fd.get()) != 0) return FileError("synced", errno);
    entry_synced_.store(true, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::StatusOr<MappedBytes> Map() const override {
    const Descriptor fd(Open(O_RDONLY));
    if (!fd.ok()) return FileError("opened", errno);
    struct stat info = {};
    if (fstat(fd.get(), &info) != 0) return FileError("examined", errno);
    if (info.st_size != size_) {
      // Reading beyond the end of a mapped file is a SIGBUS.
      return Refuse(absl::StatusCode::kInternal, "SPOOL_FAILED",
                    "a file of the spool must be %d bytes; somebody made it %d", size_,
                    info.st_size);
    }
    const auto size = static_cast<size_t>(size_);
    void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) return FileError("mapped into memory", errno);
    return MappedBytes(std::span(static_cast<const std::byte*>(data), size));
  }

 private:
  int Open(int flags) const {
    return openat(folder_->fd.get(), name_.c_str(), flags | O_CLOEXEC | O_NOFOLLOW);
  }

  const std::shared_ptr<const Folder> folder_;
  std::string name_;
  const int64_t size_;
  std::atomic<bool> entry_synced_{false};
};

// An error number, or 0.
int Allocate(int fd, int64_t size) {
  // Taking blocks may wait for others that are being freed. A few are taken when bytes come.
  if (size < kReservedBytes) return ftruncate(fd, size) == 0 ? 0 : errno;
  while (fallocate(fd, 0, 0, size) != 0) {
    if (errno == EINTR) continue;
    // The file system cannot: a full disk shows when bytes come.
    if (errno == EOPNOTSUPP || errno == ENOSYS) return ftruncate(fd, size) == 0 ? 0 : errno;
    return errno;
  }
  return 0;
}

class FolderSpool final : public Spool {
 public:
  explicit FolderSpool(std::shared_ptr<const Folder> folder) : folder_(std::move(folder)) {}

  absl::StatusOr<std::unique_ptr<SpoolFile>> Create(std::string_view id, int64_t size) override {
    SPARSEFW_ASSIGN_OR_RETURN(const std::string name, NameOfFile(id, kPartSuffix));
    const Descriptor fd(openat(folder_->fd.get(), name.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.ok()) return FileError("made", errno);
    NewSpoolFile file(std::make_unique<FolderFile>(folder_, name, size));
    int error = Allocate(fd.get(), size);
    if (error == ENOSPC) {
      folder_->remover->Wait();
      error = Allocate(fd.get(), size);
    }
    if (error != 0) {
      return FileError(absl::StrFormat("made %d bytes long", size), error);
    }
    return file.Take();
  }

  absl::StatusOr<std::unique_ptr<SpoolFile>> Adopt(std::string_view id, int64_t size) override {
    SPARSEFW_ASSIGN_OR_RETURN(std::string name, NameOfFile(id, kKeptSuffix));
    struct stat info = {};
    int error = Examine(name, &info);
    if (error == ENOENT) {
      SPARSEFW_ASSIGN_OR_RETURN(const std::string part, NameOfFile(id, kPartSuffix));
      error = Examine(part, &info);
      if (error == 0) name = part;
    }
    if (error != 0) {
      if (error != ENOENT) return FileError("examined", error);
      return Refuse(absl::StatusCode::kNotFound, "SPOOL_FAILED", "the spool has no file %s", name);
    }
    if (!S_ISREG(info.st_mode) || info.st_size != size) {
      return Refuse(absl::StatusCode::kDataLoss, "TENSOR_CORRUPT",
                    "the file of a tensor must be %d bytes; it has %d", size, info.st_size);
    }
    return std::make_unique<FolderFile>(folder_, name, size);
  }

  absl::StatusOr<std::vector<SpoolEntry>> List() const override {
    const int fd = openat(folder_->fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FileError("listed", errno);
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(fd), closedir);  // owns fd
    if (entries == nullptr) return FileError("listed", errno);
    std::vector<SpoolEntry> files;
    errno = 0;
    while (const dirent* entry = readdir(entries.get())) {
      const std::string_view name(entry->d_name);
      const std::optional<SpoolEntry::Kind> kind = KindOf(name);
      if (!kind.has_value()) continue;
      struct stat info = {};
      if (fstatat(folder_->fd.get(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return FileError("examined", errno);
      }
      files.push_back({std::string(name.substr(0, kIdLength)), info.st_size, *kind});
    }
    if (errno != 0) return FileError("listed", errno);
    return files;
  }

  absl::StatusOr<std::string> Owner() const override {
    const Descriptor fd(openat(folder_->fd.get(), kOwnerName, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.ok()) {
      if (errno == ENOENT) return std::string();
      return FileError("read", errno);
    }
    char text[kMostOwnerBytes];
    const ssize_t size = read(fd.get(), text, sizeof(text));
    if (size < 0) return FileError("read", errno);
    const std::string_view line(text, static_cast<size_t>(size));
    return std::string(line.substr(0, line.find('\n')));
  }

  // Whole or not at all: a name that is cut short would be that of nobody.
  absl::Status SetOwner(std::string_view store) override {
    const std::string line = absl::StrFormat("%s\n", store);
    const Descriptor fd(openat(folder_->fd.get(), kNewOwnerName,
                               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.ok()) return FileError("made", errno);
    if (write(fd.get(), line.data(), line.size()) != std::ssize(line)) {
      return FileError("written", errno == 0 ? ENOSPC : errno);
    }
    if (fdatasync(fd.get()) != 0) return FileError("synced", errno);
    if (renameat(folder_->fd.get(), kNewOwnerName, folder_->fd.get(), kOwnerName) != 0) {
      return FileError("named", errno);
    }
    return fsync(folder_->fd.get()) == 0 ? absl::OkStatus() : FileError("synced", errno);
  }

  void Release(std::string_view id) override {
    const absl::StatusOr<std::string> kept = NameOfFile(id, kKeptSuffix);
    const absl::StatusOr<std::string> part = NameOfFile(id, kPartSuffix);
    if (!kept.ok() || !part.ok()) return;
    const int fd = folder_->fd.get();
    (void)renameat(fd, kept->c_str(), fd, part->c_str());
  }

  // A hint, as the names are: without it the next start may ask for a decision.
  void SyncNames() override { (void)fsync(folder_->fd.get()); }

  absl::Status Remove(std::string_view id) override {
    for (const std::string_view suffix : {kKeptSuffix, kPartSuffix}) {
      SPARSEFW_ASSIGN_OR_RETURN(const std::string name, NameOfFile(id, suffix));
      const int error = folder_->remover->Remove(folder_->fd.get(), name);
      if (error != 0 && error != ENOENT) return FileError("removed", error);
    }
    return absl::OkStatus();
  }

  void MarkDeleted(std::string_view id) override {
    const absl::StatusOr<std::string> name = NameOfFile(id, kDeletedSuffix);
    if (!name.ok()) return;
    // Empty: it needs no room where nothing has any.
    const int fd = folder_->fd.get();
    const Descriptor made(
        openat(fd, name->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (made.ok()) return;
    // The folder takes no more files: the tensor's own file becomes the mark.
    for (const std::string_view suffix : {kKeptSuffix, kPartSuffix}) {
      const absl::StatusOr<std::string> file = NameOfFile(id, suffix);
      if (file.ok() && renameat(fd, file->c_str(), fd, name->c_str()) == 0) return;
    }
  }

  void UnmarkDeleted(std::string_view id) override {
    const absl::StatusOr<std::string> name = NameOfFile(id, kDeletedSuffix);
    if (name.ok()) unlinkat(folder_->fd.get(), name->c_str(), 0);
  }

 private:
  // An error number, or 0.
  int Examine(const std::string& name, struct stat* info) const {
    const int fd = folder_->fd.get();
    return fstatat(fd, name.c_str(), info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  }

  const std::shared_ptr<const Folder> folder_;
};

absl::StatusOr<Descriptor> OpenFolder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return SpoolError(path, "made", error.value());
  // The folder holds clients' weights: only the server may read it.
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return SpoolError(path, "made", errno);
  Descriptor fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return SpoolError(path, "opened as a folder", errno);
  if (faccessat(fd.get(), ".", W_OK | X_OK, AT_EACCESS) != 0) {
    return SpoolError(path, "written", errno);
  }
  return fd;
}

std::string HolderOf(int lock) {
  char pid[24] = {};
  const ssize_t size = pread(lock, pid, sizeof(pid) - 1, 0);
  return size > 0 ? absl::StrFormat("process %d", std::atoll(pid)) : "another process";
}

absl::StatusOr<Descriptor> LockFolder(const std::string& path, int folder) {
  Descriptor lock(openat(folder, kLockName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.ok()) return SpoolError(path, "locked", errno);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return SpoolError(path, "locked", errno);
    return Refuse(absl::StatusCode::kFailedPrecondition, "SPOOL_IN_USE",
                  "%s: a spool folder must belong to one server; %s is using it", path,
                  HolderOf(lock.get()));
  }
  // Only the message above needs the process id: the lock holds without it on a full disk.
  const std::string pid = absl::StrFormat("%d\n", getpid());
  if (ftruncate(lock.get(), 0) == 0) (void)!pwrite(lock.get(), pid.data(), pid.size(), 0);
  return lock;
}

}  // namespace

MappedBytes::~MappedBytes() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<std::shared_ptr<Spool>> OpenSpoolFolder(const std::string& folder) {
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) {
    return Invalid("OPTION_INVALID", "the spool folder must have a name; got none");
  }
  SPARSEFW_ASSIGN_OR_RETURN(Descriptor fd, OpenFolder(path));
  SPARSEFW_ASSIGN_OR_RETURN(Descriptor lock, LockFolder(path, fd.get()));
  return std::make_shared<FolderSpool>(
      std::make_shared<const Folder>(Folder{std::move(fd), std::move(lock)}));
}

}  // namespace sparsefw::server

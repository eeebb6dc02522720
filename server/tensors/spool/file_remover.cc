#include "server/tensors/spool/file_remover.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sparsefw::server {

FileRemover::FileRemover() : thread_([this] { Run(); }) {}

FileRemover::~FileRemover() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

int FileRemover::Remove(int folder, const std::string& name) {
  // At the limit of descriptors there is none, and unlinkat frees the blocks.
  Descriptor file(openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (unlinkat(folder, name.c_str(), 0) != 0) return errno;
  if (!file.ok()) return 0;
  MutexLock lock(mutex_);
  if (files_.size() < kMostFiles) {
    files_.push_back(std::move(file));
    wake_.NotifyOne();
  }
  return 0;
}

void FileRemover::Wait() {
  MutexLock lock(mutex_);
  while (busy_ || !files_.empty()) freed_.Wait(mutex_);
}

void FileRemover::Run() {
  while (true) {
    Descriptor file;
    {
      MutexLock lock(mutex_);
      busy_ = false;
      freed_.NotifyAll();
      while (files_.empty() && !stopping_) wake_.Wait(mutex_);
      if (files_.empty()) return;
      busy_ = true;
      file = std::move(files_.front());
      files_.pop_front();
    }
  }
}

}  // namespace sparsefw::server

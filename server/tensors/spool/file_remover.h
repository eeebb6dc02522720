// Takes files out of a folder without waiting for the file system to free their blocks.
#ifndef SPARSEFW_SERVER_TENSORS_SPOOL_FILE_REMOVER_H_
#define SPARSEFW_SERVER_TENSORS_SPOOL_FILE_REMOVER_H_

#include <cstddef>
#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "server/net/descriptor.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {

// Freeing the blocks of a file takes seconds where the file system discards them on the device.
// A file that is open keeps its blocks when its name goes, so a thread of this object holds it and
// closes it: one file at a time, so that others still get their turn at the device. Thread-safe.
class FileRemover {
 public:
  // Files that wait; whoever removes one more frees its blocks itself.
  static constexpr size_t kMostFiles = 64;

  FileRemover();
  ~FileRemover();  // all blocks are free
  FileRemover(const FileRemover&) = delete;
  FileRemover& operator=(const FileRemover&) = delete;

  // The name is gone when it returns. An error number, or 0.
  int Remove(int folder, const std::string& name);
  // Returns once the blocks of all files that were removed before are free.
  void Wait();

 private:
  void Run();

  Mutex mutex_;
  CondVar wake_;   // the thread: files_, stopping_
  CondVar freed_;  // Wait: busy_, files_
  std::deque<Descriptor> files_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_SPOOL_FILE_REMOVER_H_

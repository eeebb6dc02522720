// Scratch of the threads at work, as many as there are at most.
#ifndef SPARSEFW_CORE_SRC_PARALLEL_SCRATCH_POOL_H_
#define SPARSEFW_CORE_SRC_PARALLEL_SCRATCH_POOL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sparsefw/mutex.h"

namespace sparsefw {

// Thread-safe. None is freed before Clear or the pool's end.
template <typename Scratch>
class ScratchPool {
 public:
  // `make` is called on any thread.
  explicit ScratchPool(std::function<std::unique_ptr<Scratch>()> make) : make_(std::move(make)) {}

  class Lease {
   public:
    explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.Take()) {}
    ~Lease() { pool_.Give(std::move(scratch_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Scratch& get() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  // Frees those that no thread works with.
  void Clear() {
    const MutexLock lock(mutex_);
    free_.clear();
  }

 private:
  std::unique_ptr<Scratch> Take() {
    {
      const MutexLock lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
      // Give runs in a destructor, where nothing may be allocated.
      free_.reserve(++made_);
    }
    return make_();
  }
  void Give(std::unique_ptr<Scratch> scratch) {
    const MutexLock lock(mutex_);
    free_.push_back(std::move(scratch));
  }

  const std::function<std::unique_ptr<Scratch>()> make_;
  Mutex mutex_;
  size_t made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Scratch>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_PARALLEL_SCRATCH_POOL_H_

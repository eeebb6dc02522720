// Device memory that tests can look at: Grams that are there, bytes that are taken.
#ifndef SPARSEFW_TESTS_SERVER_JOBS_FAKE_GRAM_H_
#define SPARSEFW_TESTS_SERVER_JOBS_FAKE_GRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/jobs/scheduling/shared_gram.h"

namespace sparsefw::server {

// The memory of fake devices, by their names. Thread-safe; outlives its Grams.
class FakeMemory {
 public:
  // 0: as much as one likes.
  explicit FakeMemory(int64_t limit = 0) : limit_(limit) {}

  // As an upload does; its bytes are given back with the last owner.
  SharedGram::Gram Upload(const std::string& device, int64_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++uploads_[device];
    }
    return std::make_shared<Gram>(*this, device, bytes);
  }
  void Take(const std::string& device, int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    taken_[device] += bytes;
    EXPECT_GE(taken_[device], 0) << device;
    if (limit_ > 0) {
      EXPECT_LE(taken_[device], limit_) << device << " has no such memory";
    }
  }
  int64_t taken(const std::string& device) {
    std::lock_guard<std::mutex> lock(mutex_);
    return taken_[device];
  }
  int uploads(const std::string& device) {
    std::lock_guard<std::mutex> lock(mutex_);
    return uploads_[device];
  }

 private:
  class Gram final : public DeviceGram {
   public:
    Gram(FakeMemory& memory, std::string device, int64_t bytes)
        : memory_(memory), device_(std::move(device)), bytes_(bytes) {
      memory_.Take(device_, bytes_);
    }
    ~Gram() override { memory_.Take(device_, -bytes_); }

   private:
    FakeMemory& memory_;
    const std::string device_;
    const int64_t bytes_;
  };

  const int64_t limit_;
  std::mutex mutex_;
  std::map<std::string, int64_t> taken_;
  std::map<std::string, int> uploads_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_TESTS_SERVER_JOBS_FAKE_GRAM_H_

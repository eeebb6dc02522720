// File descriptors: one that is closed with its owner; how many the process may open, and has open.
#ifndef SPARSEFW_SERVER_NET_DESCRIPTOR_H_
#define SPARSEFW_SERVER_NET_DESCRIPTOR_H_

#include <unistd.h>

#include <cstdint>
#include <utility>

namespace sparsefw::server {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  // The caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Raises the soft limit of the process to the hard one.
void RaiseDescriptorLimit();

int64_t DescriptorLimit();
// 0 where /proc does not tell.
int64_t OpenDescriptors();

// Descriptors that connections leave to files and to the system: a quarter of
// the limit, at most 256.
int64_t ReservedDescriptors();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_DESCRIPTOR_H_

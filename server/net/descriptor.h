// A file descriptor that is closed with its owner.
#ifndef SPARSEFW_SERVER_NET_DESCRIPTOR_H_
#define SPARSEFW_SERVER_NET_DESCRIPTOR_H_

#include <unistd.h>

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

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_DESCRIPTOR_H_

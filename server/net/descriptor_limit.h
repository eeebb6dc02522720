// How many file descriptors the process may open, and has open.
#ifndef SPARSEFW_SERVER_NET_DESCRIPTOR_LIMIT_H_
#define SPARSEFW_SERVER_NET_DESCRIPTOR_LIMIT_H_

#include <cstdint>

namespace sparsefw::server {

// Raises the soft limit of the process to the hard one.
void RaiseDescriptorLimit();

int64_t DescriptorLimit();
// 0 where /proc does not tell.
int64_t OpenDescriptors();

// Descriptors that connections leave to files and to the system: a quarter of
// the limit, at most 256.
int64_t ReservedDescriptors();

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_DESCRIPTOR_LIMIT_H_

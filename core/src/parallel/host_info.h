// Name, cores and memory of this machine.
#ifndef SPARSEFW_CORE_SRC_PARALLEL_HOST_INFO_H_
#define SPARSEFW_CORE_SRC_PARALLEL_HOST_INFO_H_

#include <cstdint>
#include <string>

namespace sparsefw {

// "AMD EPYC 9B14"; "unknown processor" where the system does not say.
std::string ProcessorName();

// Memory of the machine, or of this process's control group where that is
// less; 0 where the system does not say.
struct HostMemory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
};
HostMemory ReadHostMemory();

}  // namespace sparsefw

#endif  // SPARSEFW_CORE_SRC_PARALLEL_HOST_INFO_H_

// An environment variable that is set as long as this lives.
#ifndef SPARSEFW_TESTS_CUDA_ON_HOST_ENVIRONMENT_H_
#define SPARSEFW_TESTS_CUDA_ON_HOST_ENVIRONMENT_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace cuda_on_host {

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name); before != nullptr) before_ = before;
    setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    if (before_.has_value()) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace cuda_on_host

#endif  // SPARSEFW_TESTS_CUDA_ON_HOST_ENVIRONMENT_H_

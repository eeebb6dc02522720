// Built under AddressSanitizer only. Debian's civetweb gives each of its
// threads 100 KiB of stack and has no option for it; the sanitizer's
// interceptors of printf and getaddrinfo alone need more than that.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>

// The program's definition comes before the C library's for shared libraries too.
extern "C" int pthread_attr_setstacksize(pthread_attr_t* attributes, size_t bytes) noexcept {
  constexpr size_t kLeast = size_t{1} << 20;
  using Function = int (*)(pthread_attr_t*, size_t);
  static const auto next =
      reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_attr_setstacksize"));
  return next(attributes, std::max(bytes, kLeast));
}

// Failpoints that do what SPARSEFW_FAILPOINTS says:
//
//   name=action[@N] separated by ;     the N-th time only (1: the first)
//   kill        SIGKILL to this process
//   sleep:MS    a pause
//   leak:BYTES  memory that is never freed
//   memory      std::bad_alloc is thrown
//
// SPARSEFW_FAILPOINTS_SEEN=FILE: every name is appended there when it is reached first.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "server/failpoint/failpoint.h"
#include "sparsefw/mutex.h"

namespace sparsefw::server {
namespace {

struct Action {
  std::string what;
  int64_t only = 0;  // 0: every time
};

class Failpoints {
 public:
  Failpoints() {
    const char* text = std::getenv("SPARSEFW_FAILPOINTS");
    for (const auto part : absl::StrSplit(text == nullptr ? "" : text, ';', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> item =
          absl::StrSplit(part, absl::MaxSplits('=', 1));
      const std::pair<std::string, std::string> action =
          absl::StrSplit(item.second, absl::MaxSplits('@', 1));
      Action& set = actions_[item.first];
      set.what = action.first;
      if (!action.second.empty() && !absl::SimpleAtoi(action.second, &set.only)) Bad(item.second);
    }
  }

  // The action to take now; empty: none.
  std::string Reach(std::string_view name) {
    MutexLock lock(mutex_);
    const int64_t count = ++counts_[std::string(name)];
    if (count == 1) Record(name);
    const auto found = actions_.find(std::string(name));
    if (found == actions_.end()) return "";
    return found->second.only == 0 || found->second.only == count ? found->second.what : "";
  }

  [[noreturn]] static void Bad(std::string_view action) {
    std::fprintf(stderr, "SPARSEFW_FAILPOINTS: unknown action %s\n", std::string(action).c_str());
    _exit(3);
  }

 private:
  static void Record(std::string_view name) {
    const char* path = std::getenv("SPARSEFW_FAILPOINTS_SEEN");
    if (path == nullptr) return;
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const std::string line = std::string(name) + "\n";
    if (fd < 0 || write(fd, line.data(), line.size()) < 0) Bad(path);
    close(fd);
  }

  Mutex mutex_;
  std::map<std::string, Action> actions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> counts_ ABSL_GUARDED_BY(mutex_);
};

std::string Reach(std::string_view name) {
  static auto* const points = new Failpoints();  // threads may run until the process ends
  return points->Reach(name);
}

}  // namespace

void Failpoint(std::string_view name) {
  const std::string action = Reach(name);
  if (action.empty()) return;
  if (action == "kill") {
    kill(getpid(), SIGKILL);
    pause();
  }
  int64_t number = 0;
  if (action.starts_with("sleep:") && absl::SimpleAtoi(action.substr(6), &number)) {
    absl::SleepFor(absl::Milliseconds(number));
    return;
  }
  if (action.starts_with("leak:") && absl::SimpleAtoi(action.substr(5), &number)) {
    // Kept, or the compiler would leave it all out.
    static std::atomic<void*> last;
    void* const leaked = std::malloc(static_cast<size_t>(number));
    if (leaked != nullptr) std::memset(leaked, 1, static_cast<size_t>(number));
    last = leaked;
    return;
  }
  if (action == "memory") throw std::bad_alloc();
  Failpoints::Bad(action);
}

}  // namespace sparsefw::server

// How a caller asks a running solve, product or accumulation to stop.
#ifndef SPARSEFW_STOP_SIGNAL_H_
#define SPARSEFW_STOP_SIGNAL_H_

#include <atomic>

namespace sparsefw {

// Thread-safe. Engines look at it at least every 50 ms of work, but for the joint search: it looks
// once a row, which takes half a second with 3072 columns and nothing excluded.
class StopSignal {
 public:
  void Request() { requested_.store(true, std::memory_order_release); }
  bool requested() const { return requested_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> requested_{false};
};

}  // namespace sparsefw

#endif  // SPARSEFW_STOP_SIGNAL_H_

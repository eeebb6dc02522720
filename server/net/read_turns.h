// Takes turns at reading the messages of one peer's streams.
#ifndef SPARSEFW_SERVER_NET_READ_TURNS_H_
#define SPARSEFW_SERVER_NET_READ_TURNS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "sparsefw/mutex.h"

namespace sparsefw::server {

// A stream that is being read may hold a whole message before anybody sees it. So only
// some are read at a time, and none while the peer holds much; the others wait, and flow
// control holds their senders. Whoever has a turn gives it back when its message is there,
// when its stream ends, or after some time in which nothing came. Thread-safe.
//
// Take, GiveBack and Resume may call the `begin` of any stream: no lock of one may be held.
class ReadTurns {
 public:
  ReadTurns(int turns, std::function<bool()> has_room)
      : has_room_(std::move(has_room)), free_(turns) {}

  using Ticket = uint64_t;

  // Calls `begin` now or later, in order of arrival.
  Ticket Take(std::function<void()> begin);
  // `begin` is not called any more; nothing where it has been.
  void Withdraw(Ticket ticket);
  void GiveBack();
  // Called when there may be room again. One thread begins turns at a time, so that a turn that is
  // given back at once costs no stack.
  void Resume();

 private:
  const std::function<bool()> has_room_;
  Mutex mutex_;
  int free_ ABSL_GUARDED_BY(mutex_);
  bool resuming_ ABSL_GUARDED_BY(mutex_) = false;
  Ticket next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Ticket, std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_NET_READ_TURNS_H_

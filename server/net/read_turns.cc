#include "server/net/read_turns.h"

#include <utility>

namespace sparsefw::server {

ReadTurns::Ticket ReadTurns::Take(std::function<void()> begin) {
  Ticket ticket = 0;
  {
    MutexLock lock(mutex_);
    ticket = next_++;
    waiting_.emplace(ticket, std::move(begin));
  }
  Resume();
  return ticket;
}

void ReadTurns::Withdraw(Ticket ticket) {
  // Destroyed outside the lock: it may hold the last reference to a stream.
  std::map<Ticket, std::function<void()>>::node_type withdrawn;
  MutexLock lock(mutex_);
  withdrawn = waiting_.extract(ticket);
}

void ReadTurns::GiveBack() {
  {
    MutexLock lock(mutex_);
    ++free_;
  }
  Resume();
}

void ReadTurns::Resume() {
  bool first = true;
  while (true) {
    std::map<Ticket, std::function<void()>>::node_type next;
    {
      MutexLock lock(mutex_);
      // The thread that resumes looks again under this lock before it stops.
      if (std::exchange(first, false) && resuming_) return;
      resuming_ = !waiting_.empty() && free_ > 0 && has_room_();
      if (!resuming_) return;
      --free_;
      next = waiting_.extract(waiting_.begin());
    }
    next.mapped()();
  }
}

}  // namespace sparsefw::server

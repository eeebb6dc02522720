#include "server/net/read_turns.h"

#include <utility>

namespace sparsefw::server {

void ReadTurns::Take(std::function<void()> begin) {
  {
    MutexLock lock(mutex_);
    waiting_.push_back(std::move(begin));
  }
  Resume();
}

void ReadTurns::GiveBack() {
  {
    MutexLock lock(mutex_);
    ++free_;
  }
  Resume();
}

void ReadTurns::Resume() {
  while (true) {
    std::function<void()> next;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty() || free_ == 0 || !has_room_()) return;
      --free_;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }
}

}  // namespace sparsefw::server

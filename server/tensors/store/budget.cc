#include "server/tensors/store/budget.h"

namespace sparsefw::server {

void Budget::Reservation::ShrinkTo(int64_t amount) {
  if (budget_ == nullptr || amount >= amount_) return;
  budget_->used_.fetch_sub(amount_ - amount, std::memory_order_relaxed);
  for (const std::shared_ptr<Budget>& joined : joined_) {
    joined->used_.fetch_sub(amount_ - amount, std::memory_order_relaxed);
  }
  amount_ = amount;
}

Budget::Reservation Budget::Reservation::Split(int64_t amount) {
  amount_ -= amount;
  Reservation taken(budget_, amount);
  taken.joined_ = joined_;
  return taken;
}

void Budget::Reservation::Join(Reservation other) {
  if (other.budget_ != nullptr) joined_.push_back(std::move(other.budget_));
  for (std::shared_ptr<Budget>& more : other.joined_) joined_.push_back(std::move(more));
  other.joined_.clear();
  other.amount_ = 0;
}

Budget::Reservation Budget::Adopt(int64_t amount) {
  used_.fetch_add(amount, std::memory_order_relaxed);
  return Reservation(shared_from_this(), amount);
}

std::shared_ptr<Budget> Budget::Create(int64_t limit) {
  return std::shared_ptr<Budget>(new Budget(limit));
}

std::optional<Budget::Reservation> Budget::TryReserve(int64_t amount, int64_t limit) {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (amount > limit - used) return std::nullopt;
  } while (!used_.compare_exchange_weak(used, used + amount, std::memory_order_relaxed));
  return Reservation(shared_from_this(), amount);
}

}  // namespace sparsefw::server

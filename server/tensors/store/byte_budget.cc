#include "server/tensors/store/byte_budget.h"

#include <utility>

namespace sparsefw::server {

ByteBudget::Reservation::Reservation(std::shared_ptr<ByteBudget> budget, int64_t bytes)
    : budget_(std::move(budget)), bytes_(bytes) {}

ByteBudget::Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::move(other.budget_)),
      joined_(std::move(other.joined_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

ByteBudget::Reservation& ByteBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    ShrinkTo(0);
    budget_ = std::move(other.budget_);
    joined_ = std::move(other.joined_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void ByteBudget::Reservation::ShrinkTo(int64_t bytes) {
  if (budget_ == nullptr || bytes >= bytes_) return;
  budget_->used_.fetch_sub(bytes_ - bytes, std::memory_order_relaxed);
  for (const std::shared_ptr<ByteBudget>& joined : joined_) {
    joined->used_.fetch_sub(bytes_ - bytes, std::memory_order_relaxed);
  }
  bytes_ = bytes;
}

ByteBudget::Reservation ByteBudget::Reservation::Split(int64_t bytes) {
  bytes_ -= bytes;
  Reservation taken(budget_, bytes);
  taken.joined_ = joined_;
  return taken;
}

void ByteBudget::Reservation::Join(Reservation other) {
  if (other.budget_ != nullptr) joined_.push_back(std::move(other.budget_));
  for (std::shared_ptr<ByteBudget>& more : other.joined_) joined_.push_back(std::move(more));
  other.joined_.clear();
  other.bytes_ = 0;
}

ByteBudget::Reservation ByteBudget::Adopt(int64_t bytes) {
  used_.fetch_add(bytes, std::memory_order_relaxed);
  return Reservation(shared_from_this(), bytes);
}

std::shared_ptr<ByteBudget> ByteBudget::Create(int64_t limit) {
  return std::shared_ptr<ByteBudget>(new ByteBudget(limit));
}

std::optional<ByteBudget::Reservation> ByteBudget::TryReserve(int64_t bytes, int64_t limit) {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit - used) return std::nullopt;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return Reservation(shared_from_this(), bytes);
}

}  // namespace sparsefw::server

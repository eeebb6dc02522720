// Bytes of memory or disk, or places for tensors, that the store may hold: admitted before they are
// used.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_BUDGET_H_
#define SPARSEFW_SERVER_TENSORS_STORE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace sparsefw::server {

// Thread-safe, lock-free. used() never exceeds limit(), not even for a moment, but
// for what Adopt took.
class Budget : public std::enable_shared_from_this<Budget> {
 public:
  // Held until this is destroyed; keeps the budget alive. Move only.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept { Swap(other); }
    Reservation& operator=(Reservation other) noexcept {
      Swap(other);
      return *this;
    }
    ~Reservation() { ShrinkTo(0); }

    int64_t amount() const { return amount_; }
    // Gives back what is more than `amount`.
    void ShrinkTo(int64_t amount);
    // Takes `amount`, in [0, amount()], out of it into one of its own.
    Reservation Split(int64_t amount);
    // Takes in as much of other budgets: from now on all is given back together.
    void Join(Reservation other);

   private:
    friend class Budget;
    Reservation(std::shared_ptr<Budget> budget, int64_t amount)
        : budget_(std::move(budget)), amount_(amount) {}
    void Swap(Reservation& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(joined_, other.joined_);
      std::swap(amount_, other.amount_);
    }

    std::shared_ptr<Budget> budget_;
    std::vector<std::shared_ptr<Budget>> joined_;
    int64_t amount_ = 0;
  };

  static std::shared_ptr<Budget> Create(int64_t limit);

  // `amount` is at least 0. Nothing when it is not free now.
  std::optional<Reservation> TryReserve(int64_t amount) { return TryReserve(amount, limit_); }
  // Reserves against `limit` in place of the budget's own, for a limit that changes.
  std::optional<Reservation> TryReserve(int64_t amount, int64_t limit);

  // Counts what is there already, whether it fits or not. Nothing more is granted until used() is
  // below the limit again.
  Reservation Adopt(int64_t amount);

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  explicit Budget(int64_t limit) : limit_(limit) {}

  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

// The room that tensors need in the store.
struct RoomNeed {
  int64_t bytes = 0;   // of memory and of disk
  int64_t places = 0;  // one a tensor
};

// Counts in every budget of ours, those of the tenant too, until it is destroyed. Move only.
class TensorRoom {
 public:
  TensorRoom() = default;
  TensorRoom(Budget::Reservation bytes, Budget::Reservation places)
      : bytes_(std::move(bytes)), places_(std::move(places)) {}

  bool HasOne(int64_t bytes) const { return bytes_.amount() >= bytes && places_.amount() >= 1; }
  // Takes the room of one tensor out of it, which it has.
  TensorRoom TakeOne(int64_t bytes) { return {bytes_.Split(bytes), places_.Split(1)}; }

 private:
  Budget::Reservation bytes_;
  Budget::Reservation places_;
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_BUDGET_H_

// Bytes of memory or disk that the tensor store may hold, admitted before they are used.
#ifndef SPARSEFW_SERVER_TENSORS_STORE_BYTE_BUDGET_H_
#define SPARSEFW_SERVER_TENSORS_STORE_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace sparsefw::server {

// Thread-safe, lock-free. used() never exceeds limit(), not even for a moment, but
// for what Adopt took.
class ByteBudget : public std::enable_shared_from_this<ByteBudget> {
 public:
  // Bytes held until this is destroyed; keeps the budget alive. Move only.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation() { ShrinkTo(0); }

    int64_t bytes() const { return bytes_; }
    // Gives back what is more than `bytes`.
    void ShrinkTo(int64_t bytes);
    // Takes `bytes`, in [0, bytes()], out of it into one of their own.
    Reservation Split(int64_t bytes);
    // Takes in as many bytes of other budgets: from now on all are given back
    // together.
    void Join(Reservation other);

   private:
    friend class ByteBudget;
    Reservation(std::shared_ptr<ByteBudget> budget, int64_t bytes);

    std::shared_ptr<ByteBudget> budget_;
    std::vector<std::shared_ptr<ByteBudget>> joined_;
    int64_t bytes_ = 0;
  };

  static std::shared_ptr<ByteBudget> Create(int64_t limit);

  // `bytes` is at least 0. Nothing when they are not free now.
  std::optional<Reservation> TryReserve(int64_t bytes) { return TryReserve(bytes, limit_); }
  // With another limit than that of the budget, for a limit that changes.
  std::optional<Reservation> TryReserve(int64_t bytes, int64_t limit);

  // For what is there already, whether it fits or not: nothing more is granted
  // until used() is below the limit again.
  Reservation Adopt(int64_t bytes);

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  explicit ByteBudget(int64_t limit) : limit_(limit) {}

  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace sparsefw::server

#endif  // SPARSEFW_SERVER_TENSORS_STORE_BYTE_BUDGET_H_

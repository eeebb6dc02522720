#include "core/src/cpu/joint/transfers.h"

#include <limits>

#include "core/src/cpu/swaps/row_minimum.h"

namespace sparsefw::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Pair {
  double change = kInfinity;
  int64_t giver = 0;
  int64_t taker = 0;
};

class Market {
 public:
  explicit Market(std::span<const JointOffer> offers)
      : offers_(offers), out_(std::ssize(offers)), in_(std::ssize(offers)) {
    transfers_.given.resize(offers.size());
    transfers_.taken.resize(offers.size());
    for (int64_t row = 0; row < std::ssize(offers); ++row) {
      out_.Set(row, Cost(row));
      in_.Set(row, -Gain(row));
    }
  }

  Transfers Run() {
    while (true) {
      const Pair pair = BestPair();
      if (!(pair.change + Tolerance(pair.giver) + Tolerance(pair.taker) < 0)) break;
      ++transfers_.given[static_cast<size_t>(pair.giver)];
      ++transfers_.taken[static_cast<size_t>(pair.taker)];
      ++transfers_.count;
      in_.Set(pair.giver, kInfinity);
      out_.Set(pair.taker, kInfinity);
      out_.Set(pair.giver, Cost(pair.giver));
      in_.Set(pair.taker, -Gain(pair.taker));
    }
    return std::move(transfers_);
  }

 private:
  const JointOffer& Offer(int64_t row) const { return offers_[static_cast<size_t>(row)]; }
  double Tolerance(int64_t row) const { return Offer(row).tolerance; }
  double Cost(int64_t row) const {
    const auto next = static_cast<size_t>(transfers_.given[static_cast<size_t>(row)]);
    return next < Offer(row).out.size() ? Offer(row).out[next].change : kInfinity;
  }
  double Gain(int64_t row) const {
    const auto next = static_cast<size_t>(transfers_.taken[static_cast<size_t>(row)]);
    return next < Offer(row).in.size() ? Offer(row).in[next].change : -kInfinity;
  }
  Pair PairOf(int64_t giver, int64_t taker) const {
    if (giver == taker) return {};  // there is one row only
    return {out_.Value(giver) + in_.Value(taker), giver, taker};
  }
  // Where one row is best at both, one of the two is the second best.
  Pair BestPair() {
    const int64_t giver = out_.Least();
    const int64_t taker = in_.Least();
    if (giver != taker) return PairOf(giver, taker);
    const double cost = out_.Value(giver);
    const double gain = in_.Value(taker);
    out_.Set(giver, kInfinity);
    const int64_t other_giver = out_.Least();
    out_.Set(giver, cost);
    in_.Set(taker, kInfinity);
    const int64_t other_taker = in_.Least();
    in_.Set(taker, gain);
    const Pair other_gives = PairOf(other_giver, taker);
    const Pair other_takes = PairOf(giver, other_taker);
    return other_gives.change < other_takes.change ? other_gives : other_takes;
  }

  const std::span<const JointOffer> offers_;
  Transfers transfers_;
  RowMinimum out_;
  RowMinimum in_;
};

}  // namespace

Transfers ChooseTransfers(std::span<const JointOffer> offers) { return Market(offers).Run(); }

}  // namespace sparsefw::cpu

#include "core/src/cuda/swaps/row_matching.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>

namespace sparsefw::cuda {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// A row and what its term and its tolerance add to the loss.
struct Entry {
  double excess = kNone;
  int64_t row = -1;
};

// The order of rows that give up a weight, and that of those that get one back.
struct OutFirst {
  bool operator()(const Entry& a, const Entry& b) const {
    return std::tie(a.excess, a.row) < std::tie(b.excess, b.row);
  }
};
struct InFirst {
  bool operator()(const Entry& a, const Entry& b) const {
    return std::tuple(a.excess, -a.row) < std::tuple(b.excess, -b.row);
  }
};

// Rows in order, those left out that are used. They are sorted as far as they are looked at: a
// round matches a few hundred rows of thousands.
template <typename Order>
class Queue {
 public:
  // The rows of `excess` that could be part of an exchange that lowers the loss by more than
  // -bound.
  Queue(const std::vector<double>& excess, double least_of_others, double bound,
        const std::vector<uint8_t>& used)
      : used_(used) {
    for (size_t row = 0; row < excess.size(); ++row) {
      if (excess[row] + least_of_others < bound) {
        entries_.push_back({excess[row], static_cast<int64_t>(row)});
      }
    }
  }

  void DropUsed() { begin_ = Skip(begin_); }
  // The first row left, and the one after it. After DropUsed.
  Entry Head() { return At(begin_); }
  Entry Second() { return At(Skip(begin_ + 1)); }

 private:
  // A round matches some 70 rows in decaying layers of 1024 and 2048 rows (gpu-log.md): two
  // doublings.
  static constexpr size_t kSortedAtFirst = 32;

  Entry At(size_t i) {
    while (i >= sorted_ && sorted_ < entries_.size()) SortMore();
    return i < entries_.size() ? entries_[i] : Entry{};
  }
  size_t Skip(size_t i) {
    while (i < entries_.size() && used_[static_cast<size_t>(At(i).row)] != 0) ++i;
    return i;
  }
  void SortMore() {
    const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    sorted_ = std::min(entries_.size(), std::max(kSortedAtFirst, 2 * sorted_));
    const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    std::nth_element(begin, end, entries_.end(), Order());
    std::sort(begin, end, Order());
  }

  std::vector<Entry> entries_;
  const std::vector<uint8_t>& used_;
  size_t begin_ = 0;
  size_t sorted_ = 0;
};

struct Candidate {
  double excess = kNone;
  RowMatch match;
};

Candidate Pair(const Entry& p, const Entry& q) {
  if (p.row < 0 || q.row < 0) return {};
  return {p.excess + q.excess, {p.row, q.row}};
}

// Where one row has both the cheapest p and the most useful q, one of the two
// is the second best.
template <typename Outs, typename Ins>
Candidate BestPair(Outs& outs, Ins& ins) {
  const Entry p = outs.Head();
  const Entry q = ins.Head();
  if (p.row != q.row) return Pair(p, q);
  const Candidate other_p = Pair(outs.Second(), q);
  const Candidate other_q = Pair(p, ins.Second());
  return other_p.excess < other_q.excess ? other_p : other_q;
}

// The first two of all rows, without sorting them.
template <typename Order>
class FirstTwo {
 public:
  explicit FirstTwo(const std::vector<double>& excess) {
    const Order order;
    for (size_t row = 0; row < excess.size(); ++row) {
      const Entry entry = {excess[row], static_cast<int64_t>(row)};
      if (!(entry.excess <= second_.excess) || entry.excess == kNone) continue;
      if (second_.row < 0 || order(entry, second_)) second_ = entry;
      if (head_.row < 0 || order(second_, head_)) std::swap(head_, second_);
    }
  }
  Entry Head() const { return head_; }
  Entry Second() const { return second_; }

 private:
  Entry head_;
  Entry second_;
};

}  // namespace

RowMatching::RowMatching(std::vector<double> tolerance)
    : tolerance_(std::move(tolerance)),
      terms_(tolerance_.size(), RowTerms{NoTerm(), NoTerm()}),
      out_(tolerance_.size(), kNone),
      in_(tolerance_.size(), kNone) {}

void RowMatching::SetTerms(int64_t row, const RowTerms& terms) {
  const auto index = static_cast<size_t>(row);
  terms_[index] = terms;
  out_[index] = terms.out.value + tolerance_[index];
  in_[index] = terms.in.value + tolerance_[index];
}

std::vector<RowMatch> RowMatching::Match() const {
  FirstTwo<OutFirst> first_outs(out_);
  FirstTwo<InFirst> first_ins(in_);
  Candidate best = BestPair(first_outs, first_ins);
  if (!(best.excess < 0)) return {};
  const double bound = kLeastOfBest * best.excess;
  std::vector<uint8_t> used(out_.size(), 0);
  Queue<OutFirst> outs(out_, first_ins.Head().excess, bound, used);
  Queue<InFirst> ins(in_, first_outs.Head().excess, bound, used);
  std::vector<RowMatch> matches;
  while (best.excess < bound) {
    matches.push_back(best.match);
    used[static_cast<size_t>(best.match.p_row)] = 1;
    used[static_cast<size_t>(best.match.q_row)] = 1;
    outs.DropUsed();
    ins.DropUsed();
    best = BestPair(outs, ins);
  }
  return matches;
}

}  // namespace sparsefw::cuda

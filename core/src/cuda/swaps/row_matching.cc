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

bool OutFirst(const Entry& a, const Entry& b) {
  return std::tie(a.excess, a.row) < std::tie(b.excess, b.row);
}
bool InFirst(const Entry& a, const Entry& b) {
  return std::tuple(a.excess, -a.row) < std::tuple(b.excess, -b.row);
}

// Rows in the order of their terms, those left out that are used.
class Queue {
 public:
  Queue(std::vector<Entry> entries, const std::vector<uint8_t>& used)
      : entries_(std::move(entries)), used_(used) {}

  // The first row left, and the first but for `row`.
  Entry Head() const { return At(Skip(begin_)); }
  Entry HeadBut(int64_t row) const {
    size_t i = Skip(begin_);
    if (i < entries_.size() && entries_[i].row == row) i = Skip(i + 1);
    return At(i);
  }
  void DropUsed() { begin_ = Skip(begin_); }

 private:
  Entry At(size_t i) const { return i < entries_.size() ? entries_[i] : Entry{}; }
  size_t Skip(size_t i) const {
    while (i < entries_.size() && used_[static_cast<size_t>(entries_[i].row)] != 0) ++i;
    return i;
  }

  std::vector<Entry> entries_;
  const std::vector<uint8_t>& used_;
  size_t begin_ = 0;
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
Candidate BestPair(const Queue& outs, const Queue& ins) {
  const Entry p = outs.Head();
  const Entry q = ins.Head();
  if (p.row != q.row) return Pair(p, q);
  const Candidate other_p = Pair(outs.HeadBut(p.row), q);
  const Candidate other_q = Pair(p, ins.HeadBut(q.row));
  return other_p.excess < other_q.excess ? other_p : other_q;
}

// The rows whose term could be part of an exchange that lowers the loss by more than -bound, in
// order.
template <typename TermOf, typename Order>
std::vector<Entry> Sorted(size_t rows, double least_of_others, double bound, const TermOf& term_of,
                          const Order& order) {
  std::vector<Entry> entries;
  for (size_t row = 0; row < rows; ++row) {
    const double excess = term_of(row);
    if (excess + least_of_others < bound) entries.push_back({excess, static_cast<int64_t>(row)});
  }
  std::sort(entries.begin(), entries.end(), order);
  return entries;
}

}  // namespace

std::vector<RowMatch> MatchRows(std::span<const RowTerms> terms,
                                std::span<const double> tolerance) {
  const auto out_of = [&](size_t row) { return terms[row].out + tolerance[row]; };
  const auto in_of = [&](size_t row) { return terms[row].in + tolerance[row]; };
  double least_out = kNone;
  double least_in = kNone;
  size_t out_row = 0;
  size_t in_row = 0;
  for (size_t row = 0; row < terms.size(); ++row) {
    if (out_of(row) < least_out) std::tie(least_out, out_row) = std::tuple(out_of(row), row);
    if (in_of(row) < least_in) std::tie(least_in, in_row) = std::tuple(in_of(row), row);
  }
  // Where the two best are in different rows, they are the first match, which bounds the others:
  // few rows are left to sort.
  const double first = out_row == in_row ? 0 : std::min(0.0, kLeastOfBest * (least_out + least_in));
  std::vector<uint8_t> used(terms.size(), 0);
  Queue outs(Sorted(terms.size(), least_in, first, out_of, OutFirst), used);
  Queue ins(Sorted(terms.size(), least_out, first, in_of, InFirst), used);
  std::vector<RowMatch> matches;
  double bound = 0;  // a match must lower the loss by more
  while (true) {
    const Candidate best = BestPair(outs, ins);
    if (!(best.excess < bound)) return matches;
    if (matches.empty()) bound = kLeastOfBest * best.excess;
    matches.push_back(best.match);
    used[static_cast<size_t>(best.match.p_row)] = 1;
    used[static_cast<size_t>(best.match.q_row)] = 1;
    outs.DropUsed();
    ins.DropUsed();
  }
}

}  // namespace sparsefw::cuda

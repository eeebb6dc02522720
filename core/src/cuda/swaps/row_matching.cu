// LaunchMatchRows of swap_kernels.h.
#include "core/src/cuda/linalg/reduce.cuh"
#include "core/src/cuda/runtime/launch.cuh"
#include "core/src/cuda/swaps/swap_kernels.h"
#include "core/src/cuda/swaps/swap_terms.h"

namespace sparsefw::cuda {
namespace {

static_assert(kMostMoves == 2 * (1 + kBlockThreads));

// A row, and what its term and its tolerance add to the loss. row -1: there is none.
struct Offer {
  double excess;
  int64_t row;
};

__device__ Offer NoOffer() { return {kInfinity, -1}; }

// The order of rows that give up a weight, and that of those that get one back.
struct OutFirst {
  __device__ bool operator()(const Offer& a, const Offer& b) const {
    return a.excess != b.excess ? a.excess < b.excess : a.row < b.row;
  }
};
struct InFirst {
  __device__ bool operator()(const Offer& a, const Offer& b) const {
    return a.excess != b.excess ? a.excess < b.excess : a.row > b.row;
  }
};

// The best of a thread's rows or of all, or the two sides of an exchange.
struct Offers {
  Offer out;
  Offer in;
  __device__ double excess() const { return out.excess + in.excess; }
};

struct Places {
  int out;
  int in;
};

// Every thread of one block holds the same, but for the offers of its own rows.
class Matching {
 public:
  __device__ Matching(int64_t rows, const double* tolerance, const RowTerms* terms)
      : rows_(rows), tolerance_(tolerance), terms_(terms) {}

  // The best exchange between two rows. Where one row has both the cheapest p and the most useful
  // q, one of the two is the second best.
  __device__ Offers Best() const {
    const Offers first = BestOfAll(BestOfThread(-1, -1));
    if (first.out.row != first.in.row) return {first.out, first.in};
    const Offers second = BestOfAll(BestOfThread(first.out.row, -1));
    const Offers other_out = {second.out, first.in};
    const Offers other_in = {first.out, second.in};
    return other_out.excess() < other_in.excess() ? other_out : other_in;
  }

  // The pair of this thread, of the rows that are not in `best`: its place in the order of pairs
  // is the thread's number.
  __device__ Offers PairOfThread(const Offers& best) const {
    __shared__ Offer outs[kBlockThreads];
    __shared__ Offer ins[kBlockThreads];
    Offers mine = BestOfThread(best.out.row, best.in.row);
    Places places = PlacesOf(mine);
    // A row is in one exchange only: where it comes sooner. Rows with the same place on both sides
    // take turns.
    if (mine.out.row == mine.in.row) {
      const bool gives = places.out != places.in ? places.out < places.in : places.out % 2 != 0;
      if (gives) {
        mine.in = NoOffer();
      } else {
        mine.out = NoOffer();
      }
    }
    outs[threadIdx.x] = ins[threadIdx.x] = NoOffer();
    places = PlacesOf(mine);
    if (mine.out.row >= 0) outs[places.out] = mine.out;
    if (mine.in.row >= 0) ins[places.in] = mine.in;
    __syncthreads();
    return {outs[threadIdx.x], ins[threadIdx.x]};
  }

  __device__ double Change(const Offers& pair) const {
    return terms_[pair.out.row].out.value + terms_[pair.in.row].in.value;
  }
  __device__ void Write(const Offers& pair, RowMove* moves) const {
    moves[0] = {pair.out.row, terms_[pair.out.row].out.col};
    moves[1] = {pair.in.row, terms_[pair.in.row].in.col};
  }

 private:
  // Leaves two rows out; -1 is none.
  __device__ Offers BestOfThread(int64_t row_left_out, int64_t other_left_out) const {
    Offers best = {NoOffer(), NoOffer()};
    for (int64_t row = threadIdx.x; row < rows_; row += kBlockThreads) {
      if (row == row_left_out || row == other_left_out) continue;
      const RowTerms terms = terms_[row];
      const double tolerance = tolerance_[row];
      Take({terms.out.value + tolerance, row}, OutFirst(), best.out);
      Take({terms.in.value + tolerance, row}, InFirst(), best.in);
    }
    return best;
  }
  template <typename Order>
  __device__ static void Take(const Offer& offer, const Order& order, Offer& best) {
    if (offer.excess < kInfinity && order(offer, best)) best = offer;
  }

  __device__ static Offers BestOfAll(const Offers& mine) {
    return BlockReduce(mine, [](const Offers& a, const Offers& b) {
      return Offers{OutFirst()(b.out, a.out) ? b.out : a.out, InFirst()(b.in, a.in) ? b.in : a.in};
    });
  }

  // How many of the threads' offers come before these.
  __device__ static Places PlacesOf(const Offers& mine) {
    __shared__ Offers offers[kBlockThreads];
    offers[threadIdx.x] = mine;
    __syncthreads();
    Places before = {0, 0};
#pragma unroll 4
    for (int k = 0; k < kBlockThreads; ++k) {
      before.out += OutFirst()(offers[k].out, mine.out) ? 1 : 0;
      before.in += InFirst()(offers[k].in, mine.in) ? 1 : 0;
    }
    __syncthreads();  // before a next call writes `offers`
    return before;
  }

  int64_t rows_;
  const double* tolerance_;
  const RowTerms* terms_;
};

// The one block of a launch: it may take the registers that it wants.
__global__ void __launch_bounds__(kBlockThreads, 1)
    MatchRowsKernel(int64_t rows, const double* tolerance, const RowTerms* terms, RowMove* moves,
                    RowExchanges* exchanges) {
  const Matching matching(rows, tolerance, terms);
  const Offers best = matching.Best();
  if (!(best.excess() < 0)) {
    if (threadIdx.x == 0) exchanges->moves = 0;
    return;
  }
  const Offers pair = matching.PairOfThread(best);
  // Pairs are in order: those that are made come first.
  const bool made = pair.excess() < kLeastOfBest * best.excess();
  if (made) matching.Write(pair, moves + 2 * (1 + threadIdx.x));
  const double change = BlockSum(made ? matching.Change(pair) : 0.0);
  const int others = BlockSum(made ? 1 : 0);
  if (threadIdx.x != 0) return;
  matching.Write(best, moves);
  exchanges->swaps += 1 + others;
  exchanges->loss_change += matching.Change(best) + change;
  exchanges->moves = 2 * (1 + others);
}

}  // namespace

CudaError LaunchMatchRows(int64_t rows, const double* tolerance, const RowTerms* terms,
                          RowMove* moves, RowExchanges* exchanges, cudaStream_t stream) {
  return Launch(MatchRowsKernel, {}, stream, rows, tolerance, terms, moves, exchanges);
}

}  // namespace sparsefw::cuda

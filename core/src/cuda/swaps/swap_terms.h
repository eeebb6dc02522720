// The arithmetic of swap refinement: what an exchange changes the loss by.
//
//   dL(p out, q in) = 2 w_p E_p + w_p^2 G_pp - 2 w_q E_q + w_q^2 G_qq - 2 w_p w_q G_pq
//                   = OutTerm(p) + WithPartner(InTerm(q), p)
//
// core/src/frank_wolfe/swap_tolerance.h has the definitions, core/src/cpu/swaps/swap_row.h the same
// for the CPU.
#ifndef SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_TERMS_H_
#define SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_TERMS_H_

#include <cstdint>
#include <limits>

#include "core/src/base/host_device.h"

namespace sparsefw::cuda {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Change of the loss when a kept weight is pruned.
SPARSEFW_HOST_DEVICE inline double OutTerm(double weight, double product, double diagonal) {
  return weight * (weight * diagonal + 2 * product);
}

// Change of the loss when a pruned weight is restored.
SPARSEFW_HOST_DEVICE inline double InTerm(double weight, double product, double diagonal) {
  return weight * (weight * diagonal - 2 * product);
}

// InTerm of q if p of the same row goes out for it; `gram`: G_pq.
SPARSEFW_HOST_DEVICE inline double WithPartner(double in, double weight_p, double weight_q,
                                               double gram) {
  return in - 2 * weight_p * (weight_q * gram);
}

// One weight's part of an exchange. col -1, value infinite: there is none.
struct Term {
  double value;
  int64_t col;
};

SPARSEFW_HOST_DEVICE inline Term NoTerm() { return {kInfinity, -1}; }

// A row's offer for exchanges with other rows: what it costs least to prune one kept weight, what
// it brings most to restore one pruned weight.
struct RowTerms {
  Term out;
  Term in;
};

// The better term of p is the lesser; among equals that of the lower index, so that the higher one
// is kept.
SPARSEFW_HOST_DEVICE inline Term CheaperOut(const Term& a, const Term& b) {
  if (a.value != b.value) return a.value < b.value ? a : b;
  return a.col < b.col ? a : b;
}

// The better term of q is the lesser; among equals that of the higher index.
SPARSEFW_HOST_DEVICE inline Term BetterIn(const Term& a, const Term& b) {
  if (a.value != b.value) return a.value < b.value ? a : b;
  return a.col > b.col ? a : b;
}

// An exchange within a row. p -1, change infinite: there is none.
struct Exchange {
  double change;
  int64_t p;
  int64_t q;
};

SPARSEFW_HOST_DEVICE inline Exchange NoExchange() { return {kInfinity, -1, -1}; }

// The one that lowers the loss more; of equals the lower p, then the higher q.
SPARSEFW_HOST_DEVICE inline Exchange BetterExchange(const Exchange& a, const Exchange& b) {
  if (a.change != b.change) return a.change < b.change ? a : b;
  if (a.p != b.p) return a.p < b.p ? a : b;
  return a.q > b.q ? a : b;
}

// The most that any partner of the kept weights of a group can gain.
struct PartnerBounds {
  double least_in;        // min_q InTerm(q)
  double largest_square;  // max_q w_q^2 G_qq
};

SPARSEFW_HOST_DEVICE inline PartnerBounds Wider(const PartnerBounds& a, const PartnerBounds& b) {
  return {a.least_in < b.least_in ? a.least_in : b.least_in,
          a.largest_square > b.largest_square ? a.largest_square : b.largest_square};
}

// Whether an exchange of p may lower the loss by more than the tolerance; if
// not, none does. `reach_of_weight`: |w_p| max_j |G_pj| / sqrt(G_jj), `norm`:
// sqrt(largest_square). Written so that NaN, infinity times 0, means that it may.
SPARSEFW_HOST_DEVICE inline bool MayImprove(double out, double least_in, double reach_of_weight,
                                            double norm, double tolerance) {
  return !(out + least_in - 2 * reach_of_weight * norm >= -tolerance);
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SWAPS_SWAP_TERMS_H_

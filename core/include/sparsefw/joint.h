// Mask and weights found together, by exchanges of one kept and one removed
// weight after each of which all kept weights of the row are solved anew.
//
//   L*(S) = min over w' supported on S of (w - w') H (w - w')^T
//   H = G + damping * mean(diag G) * I              row by row
//
// With A, the sweep tableau of [H b; b^T c], b = wH, swept on the kept columns S:
//
//   removing q costs       w'_q^2 h,                 h = -1 / A_qq
//   adding p gains         r_p^2 / A_pp,             r = the residual b - w'H
//   exchanging q for p     gains (r_p + A_qp f)^2 / (A_pp + A_qp^2 h) - w'_q^2 h,   f = w'_q h
//
// Exchanges are taken while they lower L*; a row keeps as many weights as the start keeps in it.
// The search begins at the result of a few iterations of ALPS where that loses less than the start.
// docs/numerics.md has the derivation and what it is measured against.
#ifndef SPARSEFW_JOINT_H_
#define SPARSEFW_JOINT_H_

#include <cstdint>
#include <functional>

#include "sparsefw/mask.h"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw {

// The alpha to use with the joint search where none is asked for: the search gains less
// the more is fixed, and costs less. Within the groups of n:m patterns few exchanges would be left.
double JointAlpha(const Pattern& pattern);
// The same for JointOptions::excluded: as many columns of a row take part as may leave it, all
// but a quarter with n:m patterns.
double JointExcluded(const Pattern& pattern, double alpha);
// The window of n:m patterns: with a narrower one no exchange would be left in most groups.
inline constexpr double kWideJointAlpha = 0.4;
inline constexpr double kWideJointExcluded = 0.25;

// Upper estimate of the bytes that the search's own start needs, beside what the search does.
int64_t JointStartBytes(int64_t rows, int64_t cols);

struct JointOptions {
  // [0, 1]: multiple of the mean diagonal of G that is added to its diagonal, in the search
  // and for the weights of the result. More fits G's own inputs less and others better: ADR 0034.
  double damping = 0.001;
  // [0, 1): share of all columns of a row, those that would gain least by the lower bound
  // r_p^2 / G_pp at the start, that enter only if, when the search has ended, that bound is
  // above what the cheapest kept weight costs. 0: every column takes part, which costs
  // more and finds little more. Unstructured, where rows keep different numbers: the share of
  // its removed columns that this is on average.
  double excluded = kWideJointExcluded;
};

// The request of Engine::SearchJointly.
struct JointRequest {
  JointOptions options = {};
  // Kept weights of `start` that stay. Meets the pattern's groups as EngineProblem::fixed. Null,
  // for engines of a backend that chooses_start: FixedSet of saliency.h with alpha, by Wanda's
  // scores of `weights`.
  const Mask* fixed = nullptr;
  double alpha = 0;
  // The start's weights, zero outside it, values of the dtype of the weights: rows
  // for which nothing better is found keep them.
  const Matrix<float>* weights = nullptr;
  // Ends the search with what it has. May be empty; called often, from any thread and
  // from several at once.
  std::function<bool()> out_of_time = {};
  // The same for solving the weights on the mask found, which comes after it.
  std::function<bool()> solving_out_of_time = {};

  // solving_out_of_time; where it ends the solving, the search has not `converged`. Refers to this
  // object and to `converged`.
  std::function<bool()> EndOfSolving(bool* converged) const {
    return [this, converged] {
      const bool out = solving_out_of_time && solving_out_of_time();
      *converged = *converged && !out;
      return out;
    };
  }
};

struct JointResult {
  Mask mask;              // meets the pattern as the start does
  Matrix<float> weights;  // zero outside it, rounded to the dtype of the weights
  // ||(W - weights) X||^2 in float64, never above that of the start's weights. Where the stop
  // signal ended the search, an upper estimate for the weights before they are rounded; infinite
  // where it had not begun.
  double loss = 0;
  int64_t exchanges = 0;
  bool converged = false;  // no exchange lowers the loss; false where cut short
};

}  // namespace sparsefw

#endif  // SPARSEFW_JOINT_H_

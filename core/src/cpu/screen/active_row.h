// One row of the iterate on its active columns: those whose vertex bit can
// change while the row stays within its radius (docs/numerics.md, Screening).
//
// With y_t = D(V_t) on the active columns, U_t = U_s + (y_t - y_s) G there, one row of G
// for every coordinate in which the vertices differ, E as ever; what the inactive columns need
// at the end of the epoch are two sums over the coordinates that toggled at all. s is t - 1 or
// t - 2, whichever vertex is nearer: late iterates zigzag, and half of what an iteration
// toggles it toggles back.
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_ACTIVE_ROW_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_ACTIVE_ROW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/cpu/screen/gram_rows.h"
#include "core/src/cpu/screen/screen_kernels.h"
#include "core/src/cpu/screen/toggle_kernels.h"
#include "core/src/frank_wolfe/lazy_mask.h"
#include "core/src/frank_wolfe/screening.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// What an active row needs of the layer and the iterate.
template <typename Real>
struct ScreenedLayer {
  Iterate<Real>& iterate;
  RelaxedMask<Real>& relaxed;
  const Matrix<Real>& norms;  // [1, stride]: sqrt(G_jj)
};

// What the toggles of a row need while they are applied; one for every thread.
template <typename Real>
struct ToggleScratch {
  std::vector<GramTerm<Real>> terms;
  std::vector<uint32_t> missing;
};

// Distinct rows concurrently.
template <typename Real>
class ActiveRow {
 public:
  // Its values, its column and where that lies in a row of G; bits.
  static constexpr int64_t kBytesPerLane = 7 * static_cast<int64_t>(sizeof(Real)) + 9;
  // What iterations change of it.
  static constexpr int64_t kSavedBytesPerLane = 5 * static_cast<int64_t>(sizeof(Real)) + 1;

  // The movement's scalars at E_s, U_{s-1}, V_{s-1}, which have not moved yet.
  void Measure(const ScreenedLayer<Real>& layer, int64_t row);
  // Takes the columns in `active` (full width) into the epoch. The others keep V_{s-1}.
  void Load(const ScreenedLayer<Real>& layer, int64_t row, const uint64_t* active);

  // V_{t-1} -> V_t is known: the toggles, a_t and c_t.
  void Commit();
  void RestoreToggles();  // of what was committed: all that a checkpoint leaves out

  // The mask's toggles and U of the committed vertex; b_t.
  void Apply(const ScreenedLayer<Real>& layer, GramRows<Real>& gram, int64_t gram_limit,
             ToggleScratch<Real>& scratch);

  // Begins to gather for its columns, a few rows of G at a time: what is not asked for is
  // not allocated.
  void BeginGram(GramRows<Real>& gram) const {
    constexpr int64_t kRowsPerChunk = 4;
    const int64_t lanes_of_row = groups() * kLaneGroup;
    gram = {};
    gram.Reset(lanes_, lanes_of_row, kRowsPerChunk * lanes_of_row);
  }

  // M, E and the movement's scalars take a step; scores as AdvanceActive.
  void Advance(const ScreenedLayer<Real>& layer, double step, Real low, Real high, Real* scores,
               uint64_t* above, uint64_t* window);
  void Advance(const ScreenedLayer<Real>& layer, double step, Real* scores) {
    AdvanceScalars(layer, step);
    ScoreActive(Operands(), groups(), static_cast<Real>(step), scores);
  }
  // M and the scalars alone, for whoever moves E by another kernel.
  void AdvanceScalars(const ScreenedLayer<Real>& layer, double step);

  // Whether the row is as near to where the epoch began as its columns were chosen for.
  bool WithinRadius();

  // The terms that E and U are off by since the epoch began, but for E = p E + (1 - p) U,
  // which is done here; both at the columns that toggled. All columns are brought up to date
  // by them, active ones too: what is equal stays equal to the last bit whether active or not.
  void Leave(const ScreenedLayer<Real>& layer, SparseRows<Real>& product_terms,
             SparseRows<Real>& vertex_terms);
  // M and both vertices, in full width.
  void StoreMask(const ScreenedLayer<Real>& layer) const;

  int64_t row() const { return row_; }
  int64_t lanes() const { return lanes_; }
  int64_t words() const { return words_; }
  int64_t groups() const { return (lanes_ + kLaneGroup - 1) / kLaneGroup; }
  int64_t stride() const { return words_ * 64; }
  int64_t col(int64_t lane) const { return cols_[static_cast<size_t>(lane)]; }
  RowOperands<Real> Operands() {
    return {words_, values_.row(kWeights), values_.row(newest_), bits_.row(kFixed),
            values_.row(kProduct)};
  }
  const Real* product() const { return values_.row(kProduct); }
  const uint64_t* fixed() const { return bits_.row(kFixed); }
  uint64_t* vertex() { return bits_.row(kVertex); }
  // Coordinates of the last vertex change, zero weights left out.
  int64_t toggled() const { return toggled_; }
  double vertex_loss_change() const { return vertex_loss_change_; }

  RowMovement movement;
  double radius = 0;         // of the columns chosen
  double largest_moved = 0;  // n^2 seen since the epoch began
  int64_t capacity = 0;      // of the vertex on the active columns, where the row has one

  // All that iterations change, to take them back.
  struct Saved {
    std::vector<Real> values;
    std::vector<uint64_t> bits;
    RowMovement movement;
    LazyScale scale;
    double largest_moved = 0;
    double older_loss = 0;
    int64_t newest = 0;
    int64_t toggled = 0;
  };
  void SaveTo(const ScreenedLayer<Real>& layer, Saved& saved) const;
  // On the same columns.
  void RestoreFrom(const ScreenedLayer<Real>& layer, const Saved& saved);

  // For checkpoints.
  std::span<const uint32_t> cols() const { return cols_; }
  Matrix<Real>& values() { return values_; }
  Matrix<uint64_t>& bits() { return bits_; }
  // Which of two rows of the values U_{t-1} is, and b_{t-2}.
  struct Older {
    int64_t swapped = 0;
    double loss = 0;
  };
  Older older() const { return {newest_ == kVertexProduct ? 0 : 1, older_loss_}; }
  void SetOlder(const Older& older);

 private:
  enum Value : int64_t {
    kWeights,
    kStartProduct,   // E_0
    kProduct,        // from here on iterations change them
    kVertexProduct,  // U_{t-1} and U_{t-2}, in turns
    kOtherProduct,
    kEntries,  // x of the relaxed mask
    kShift,    // by how much x has changed since the epoch began
    kValueCount
  };
  enum Bit : int64_t {
    kFixed,
    kStart,
    kPrevious,  // V_{t-1}; from here on iterations change them
    kOlder,     // V_{t-2}
    kVertex,
    kBitCount
  };

  int64_t oldest() const { return newest_ == kVertexProduct ? kOtherProduct : kVertexProduct; }
  int64_t Distance(Bit from) const;  // of V_t
  void CollectTerms(const ScreenedLayer<Real>& layer, const VertexChange<Real>& change,
                    int64_t count, GramRows<Real>& gram, ToggleScratch<Real>& scratch);
  VertexChange<Real> Change(Bit from) const;  // to the chosen vertex
  void LoadBits(const ScreenedLayer<Real>& layer);

  int64_t row_ = 0;
  int64_t lanes_ = 0;
  int64_t words_ = 0;
  std::vector<uint32_t> cols_;
  std::vector<int32_t> offsets_;  // in a row of G
  Matrix<Real> values_;           // [kValueCount, stride]
  Matrix<uint64_t> bits_;         // [kBitCount, words]
  int64_t newest_ = kVertexProduct;
  double older_loss_ = 0;
  int64_t toggled_ = 0;
  double vertex_loss_change_ = 0;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_ACTIVE_ROW_H_

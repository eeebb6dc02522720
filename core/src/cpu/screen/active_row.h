// One row of the iterate on its active columns: those whose vertex bit can
// change while the row stays within its radius (docs/numerics.md, Screening).
//
// With y_t = D(V_t) on the active columns, U_t = U_s + (y_t - y_s) G there, one row of G
// for every coordinate in which the vertices differ, E as ever; what the inactive columns need
// at the end of the epoch are two sums over the coordinates that toggled at all. s is t - 1 or
// t - 2, whichever vertex is nearer: late iterates zigzag, and half of what an iteration
// toggles it toggles back.
//
// In this folder, in the order in which to read it:
//   column_choice          which columns of a row are active
//   active_row, gram_rows  a row on them
//   row_plan               its radius and window, with the constants of all of this
//   screened_epoch         all rows from one pair of full products E, U to the next
//   screened_steps         how rows take iterations: many each, or one at a time
//   independent_steps      rows that share no budget
//   shared_steps           rows that do: the threshold lies near what threshold_forecast says
//   screen_kernels         the vectorised loops
#ifndef SPARSEFW_CORE_SRC_CPU_SCREEN_ACTIVE_ROW_H_
#define SPARSEFW_CORE_SRC_CPU_SCREEN_ACTIVE_ROW_H_

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/src/cpu/iteration/iterate.h"
#include "core/src/cpu/iteration/relaxed_mask.h"
#include "core/src/cpu/iteration/sparse_rows.h"
#include "core/src/cpu/screen/gram_rows.h"
#include "core/src/cpu/screen/screen_kernels.h"
#include "core/src/frank_wolfe/screening.h"
#include "sparsefw/matrix.h"

namespace sparsefw::cpu {

// What an active row needs of the layer and the iterate.
template <typename Real>
struct ScreenedLayer {
  Iterate<Real>& iterate;
  RelaxedMask<Real>& relaxed;
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

  // The movement's scalars at E_s, U_{s-1}, V_{s-1}, which have not moved yet.
  void Measure(const ScreenedLayer<Real>& layer, int64_t row);
  // Takes the columns in `active` (full width) into the epoch. The others keep V_{s-1}.
  void Load(const ScreenedLayer<Real>& layer, int64_t row, const uint64_t* active);

  // V_{t-1} -> V_t is known: the toggles, a_t and c_t.
  void Commit();

  // The mask's toggles and U of the committed vertex; b_t.
  void Apply(const ScreenedLayer<Real>& layer, GramRows<Real>& gram, ToggleScratch<Real>& scratch);

  // Begins to gather for its columns. Up to `limit` bytes are allocated in large pieces, which
  // stay; with 0, no limit, a few rows of G at a time, so that what is not asked for takes no
  // memory.
  void BeginGram(GramRows<Real>& gram, int64_t limit) const {
    constexpr auto kSize = static_cast<int64_t>(sizeof(Real));
    constexpr int64_t kChunkBytes = int64_t{1} << 20;
    const int64_t stride = groups() * kLaneGroup;
    if (limit == 0) gram = {};  // pieces of other columns may be too short for these
    gram.Reset(lanes_, stride, limit > 0 ? kChunkBytes / kSize : 4 * stride,
               limit > 0 ? limit / kSize : std::numeric_limits<int64_t>::max());
  }

  // M and the movement's scalars take a step. E is moved by the kernel that selects the vertex.
  void Advance(const ScreenedLayer<Real>& layer, double step);

  // Whether the row is as near to where the epoch began as its columns were chosen for.
  bool WithinRadius();

  // The terms that E and U are off by since the epoch began, but for E = p E + (1 - p) U,
  // which is done here; both at the columns that toggled. All columns are brought up to date
  // by them, active ones too: what is equal stays equal to the last bit whether active or not.
  void Leave(const ScreenedLayer<Real>& layer, SparseRows<Real>& product_terms,
             SparseRows<Real>& vertex_terms);
  // M and both vertices, in full width.
  void StoreMask(const ScreenedLayer<Real>& layer) const;

  int64_t lanes() const { return lanes_; }
  int64_t words() const { return words_; }
  int64_t groups() const { return (lanes_ + kLaneGroup - 1) / kLaneGroup; }
  int64_t stride() const { return words_ * 64; }
  int64_t col(int64_t lane) const { return cols_[static_cast<size_t>(lane)]; }
  RowOperands<Real> Operands() {
    return {words_,
            values_.row(kWeights),
            values_.row(newest()),
            bits_.row(kFixed),
            values_.row(kProduct),
            groups() * kLaneGroup};
  }
  const Real* product() const { return values_.row(kProduct); }
  uint64_t* vertex() { return bits_.row(kVertex); }
  // Coordinates of the last vertex change, zero weights left out.
  int64_t toggled() const { return state_.toggled; }
  RowMovement& movement() { return state_.movement; }
  double largest_moved() const { return state_.largest_moved; }
  double vertex_loss_change() const { return vertex_loss_change_; }

  double radius = 0;     // of the columns chosen
  int64_t capacity = 0;  // of the vertex on the active columns, where the row has one

  // The scalars that iterations change. All of 8 bytes, so that there is no padding.
  struct State {
    RowMovement movement;
    double largest_moved = 0;  // n^2 seen since the epoch began
    double older_loss = 0;     // b_{t-2}
    int64_t swapped = 0;       // not 0: U_{t-1} and U_{t-2} have changed places
    int64_t toggled = 0;
  };

  // For checkpoints.
  std::span<const uint32_t> cols() const { return cols_; }
  Matrix<Real>& values() { return values_; }
  Matrix<uint64_t>& bits() { return bits_; }
  State& state() { return state_; }

 private:
  enum Value : int64_t {
    kWeights,
    kStartProduct,  // E_0
    kProduct,
    kVertexProduct,  // U_{t-1} and U_{t-2}, in turns
    kOtherProduct,
    kEntries,  // x of the relaxed mask
    kShift,    // by how much x has changed since the epoch began
    kValueCount
  };
  enum Bit : int64_t {
    kFixed,
    kStart,
    kPrevious,  // V_{t-1}
    kOlder,     // V_{t-2}
    kVertex,
    kBitCount
  };

  Value newest() const { return state_.swapped != 0 ? kOtherProduct : kVertexProduct; }
  Value oldest() const { return state_.swapped != 0 ? kVertexProduct : kOtherProduct; }
  void CollectTerms(const ScreenedLayer<Real>& layer, const VertexChange<Real>& change,
                    int64_t count, GramRows<Real>& gram, ToggleScratch<Real>& scratch);
  VertexChange<Real> Change(Bit from) const;  // to the chosen vertex

  int64_t row_ = 0;
  int64_t lanes_ = 0;
  int64_t words_ = 0;
  std::vector<uint32_t> cols_;
  std::vector<int32_t> offsets_;  // in a row of G
  Matrix<Real> values_;           // [kValueCount, stride]
  Matrix<uint64_t> bits_;         // [kBitCount, words]
  State state_;
  double vertex_loss_change_ = 0;
};

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_SCREEN_ACTIVE_ROW_H_

// Keys of the selection, cut into digits for a radix selection from the top.
// core/src/select/ordered_key.h and core/src/frank_wolfe/rounding_key.h make them.
//
// The entries selected are those with the largest (key, index): of equal keys
// the higher row-major index, the tie order of the whole project. Key 0 means
// "not to be selected". A selection of k entries is therefore described by a
// Threshold alone, and found digit by digit by counting: docs/adr/0010 has why.
#ifndef SPARSEFW_CORE_SRC_CUDA_SELECT_SELECTION_KEYS_H_
#define SPARSEFW_CORE_SRC_CUDA_SELECT_SELECTION_KEYS_H_

#include <cstdint>
#include <cstring>

#include "core/src/base/host_device.h"
#include "core/src/frank_wolfe/rounding_key.h"
#include "core/src/select/ordered_key.h"

namespace sparsefw::cuda {

// The key of a score: its ordered key without the sign where it is positive, which is a positive
// number's own bits; 0 where it is not (NaN included).
SPARSEFW_HOST_DEVICE inline uint64_t ScoreKey(float score) {
  return score > 0 ? OrderedKey(score) ^ (uint32_t{1} << 31) : 0;
}
SPARSEFW_HOST_DEVICE inline uint64_t ScoreKey(double score) {
  return score > 0 ? OrderedKey(score) ^ (uint64_t{1} << 63) : 0;
}
template <typename Real>
inline constexpr int kScoreKeyBits = 8 * static_cast<int>(sizeof(Real)) - 1;

// The score of a key.
template <typename Real>
SPARSEFW_HOST_DEVICE double ScoreOfKey(uint64_t key) {
  if constexpr (sizeof(Real) == sizeof(float)) {
    const auto bits = static_cast<uint32_t>(key);
    float score = 0;
    memcpy(&score, &bits, sizeof(score));
    return static_cast<double>(score);
  } else {
    double score = 0;
    memcpy(&score, &key, sizeof(score));
    return score;
  }
}

// Digit number `digit`, counted from the top, of values of `bits` bits.
struct DigitPlace {
  int shift = 0;  // of the digit's lowest bit
  int width = 0;
};
SPARSEFW_HOST_DEVICE inline DigitPlace PlaceOf(int digit, int bits, int digit_width) {
  const int above = digit * digit_width;
  const int left = bits - above;
  const int width = left < digit_width ? left : digit_width;
  return {bits - above - width, width};
}
SPARSEFW_HOST_DEVICE constexpr int DigitsOf(int bits, int digit_width) {
  return (bits + digit_width - 1) / digit_width;
}
// The digits above the place.
SPARSEFW_HOST_DEVICE inline uint64_t Above(uint64_t value, const DigitPlace& place) {
  const int shift = place.shift + place.width;
  return shift >= 64 ? 0 : value >> shift;
}
SPARSEFW_HOST_DEVICE inline uint32_t DigitAt(uint64_t value, const DigitPlace& place) {
  return static_cast<uint32_t>((value >> place.shift) & ((uint64_t{1} << place.width) - 1));
}

// Bits that indices 0 .. count - 1 need.
inline int IndexBits(int64_t count) {
  int bits = 1;
  while (bits < 63 && (int64_t{1} << bits) < count) ++bits;
  return bits;
}

// Without initialisers, as __shared__ variables must be: Threshold{} is zero.
struct Threshold {
  uint64_t key;
  uint64_t index;

  SPARSEFW_HOST_DEVICE bool Selects(uint64_t other_key, uint64_t other_index) const {
    return other_key != 0 && (other_key > key || (other_key == key && other_index >= index));
  }
};

// The state of a selection between two digits.
struct Selection {
  Threshold threshold;  // the digits known so far, in place; then the result
  int64_t needed;       // how many of those that agree in these digits
  int32_t done;         // the threshold is final
  int32_t within;       // only entries inside the window are looked at: score_window.h

  // Nothing is selected.
  SPARSEFW_HOST_DEVICE void SelectNone() {
    threshold = {~uint64_t{0}, ~uint64_t{0}};
    done = 1;
  }
};

// Where a value belongs while digit `place` of it is counted: whether it still
// agrees with the threshold above the place.
SPARSEFW_HOST_DEVICE inline bool KeyAgrees(const Selection& selection, uint64_t key,
                                           const DigitPlace& place) {
  return key != 0 && Above(key, place) == Above(selection.threshold.key, place);
}
SPARSEFW_HOST_DEVICE inline bool IndexAgrees(const Selection& selection, uint64_t key,
                                             uint64_t index, const DigitPlace& place) {
  return key == selection.threshold.key &&
         Above(index, place) == Above(selection.threshold.index, place);
}

// The bin of a digit in which the threshold lies was found: `above` entries are
// in higher bins, `inside` in it.
SPARSEFW_HOST_DEVICE inline void EnterBin(Selection& selection, bool index_digit, uint32_t bin,
                                          const DigitPlace& place, int64_t above, int64_t inside) {
  const uint64_t digits = static_cast<uint64_t>(bin) << place.shift;
  (index_digit ? selection.threshold.index : selection.threshold.key) |= digits;
  selection.needed -= above;
  // All of the bin are needed: the smallest value with these digits will do,
  // and 1 where that would be 0, the key of what must not be selected.
  if (selection.needed == inside) {
    selection.done = 1;
    if (selection.threshold.key == 0) selection.threshold.key = 1;
  }
}

// Begins with the count of all eligible entries known.
SPARSEFW_HOST_DEVICE inline void BeginSelection(Selection& selection, int64_t wanted,
                                                int64_t eligible) {
  selection = Selection{};
  selection.needed = wanted;
  if (wanted <= 0) {
    selection.SelectNone();
  } else if (eligible <= wanted) {
    selection.threshold = {1, 0};
    selection.done = 1;
  }
}

}  // namespace sparsefw::cuda

#endif  // SPARSEFW_CORE_SRC_CUDA_SELECT_SELECTION_KEYS_H_

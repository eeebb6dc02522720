// Where the whole matrix is one group: which rows give a kept weight to which.
#ifndef SPARSEFW_CORE_SRC_CPU_JOINT_TRANSFERS_H_
#define SPARSEFW_CORE_SRC_CPU_JOINT_TRANSFERS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/src/cpu/joint/row_search.h"

namespace sparsefw::cpu {

// What a row offers: the columns it would remove and take next.
struct JointOffer {
  std::vector<JointMove> out;
  std::vector<JointMove> in;
  double tolerance = 0;
};

// How many of each row's moves are made; a row either gives or takes.
struct Transfers {
  std::vector<int32_t> given;
  std::vector<int32_t> taken;
  int64_t count = 0;
};

// Pairs the cheapest removal with the most useful addition of another row while that
// lowers the loss by more than both rows' tolerances. A row's moves follow each other
// in its list, for each is priced after those before it.
Transfers ChooseTransfers(std::span<const JointOffer> offers);

}  // namespace sparsefw::cpu

#endif  // SPARSEFW_CORE_SRC_CPU_JOINT_TRANSFERS_H_

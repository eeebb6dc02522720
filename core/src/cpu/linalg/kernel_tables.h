// Tables of vectorised functions, one for each type and instruction set.
#ifndef SPARSEFW_CORE_SRC_CPU_LINALG_KERNEL_TABLES_H_
#define SPARSEFW_CORE_SRC_CPU_LINALG_KERNEL_TABLES_H_

#include "hwy/highway.h"

// Defines `getter<Real>()`, which returns the table `Kernels<Real>` for the processor at hand.
// Highway dispatches plain functions: Float<Kernels> and Double<Kernels> hand out the tables.
#define SPARSEFW_DISPATCH_TABLES(Kernels, getter)                 \
  SPARSEFW_DISPATCH_TABLE(Float##Kernels, Kernels<float>, getter) \
  SPARSEFW_DISPATCH_TABLE(Double##Kernels, Kernels<double>, getter)

#define SPARSEFW_DISPATCH_TABLE(function, Table, getter)           \
  HWY_EXPORT(function);                                            \
  template <>                                                      \
  const Table& getter() {                                          \
    static const Table& table = *HWY_DYNAMIC_DISPATCH(function)(); \
    return table;                                                  \
  }

#endif  // SPARSEFW_CORE_SRC_CPU_LINALG_KERNEL_TABLES_H_

// The header of a .npy file.
#include <cstdint>
#include <span>

#include "client/cpp/cli/files/npy.h"
#include "sparsefw/dtype.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sparsefw::fuzz::Require;
  const auto file = std::as_bytes(std::span(data, size));
  const auto array = sparsefw::cli::ParseNpy("x.npy", file);
  if (!array.ok()) {
    Require(array.status().message().substr(0, 7) == "x.npy: ", "a refusal names the file");
    return 0;
  }
  Require(array->bytes.data() >= file.data() && array->bytes.size() <= size &&
              array->bytes.data() + array->bytes.size() == file.data() + size,
          "the array is the end of the file");
  Require(array->shape.size() <= 64, "so many dimensions no framework has");
  for (const int64_t dim : array->shape) Require(dim >= 0, "a dimension is not negative");
  const auto dtype = sparsefw::ParseDType(array->dtype_name);
  if (!dtype) return 0;  // who reads it refuses it
  size_t left = array->bytes.size() / sparsefw::SizeOf(*dtype);
  Require(left * sparsefw::SizeOf(*dtype) == array->bytes.size(), "elements are whole");
  for (const int64_t dim : array->shape) {
    if (dim == 0) {
      Require(array->bytes.empty(), "an array without elements has no bytes");
      return 0;
    }
    Require(left % static_cast<size_t>(dim) == 0, "the shape divides the bytes");
    left /= static_cast<size_t>(dim);
  }
  Require(left == 1, "the shape fills the file");
  return 0;
}

// Reads the vectors of tests/golden.
#ifndef SPARSEFW_TESTS_CORE_SOLVER_GOLDEN_JSON_H_
#define SPARSEFW_TESTS_CORE_SOLVER_GOLDEN_JSON_H_

#include <cstdint>
#include <fstream>
#include <string>

#include "nlohmann/json.hpp"
#include "sparsefw/matrix.h"
#include "sparsefw/pattern.h"

namespace sparsefw::testing {

inline nlohmann::json ReadGolden(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(SPARSEFW_SOURCE_DIR "/tests/golden/" + name));
}

inline const nlohmann::json& Golden() {
  static const nlohmann::json golden = ReadGolden("golden.json");
  return golden;
}

template <typename T>
Matrix<T> MatrixOf(const nlohmann::json& rows) {
  Matrix<T> matrix(std::ssize(rows), std::ssize(rows.at(0)));
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    for (int64_t col = 0; col < matrix.cols(); ++col) {
      matrix(row, col) = rows.at(static_cast<size_t>(row)).at(static_cast<size_t>(col)).get<T>();
    }
  }
  return matrix;
}

inline Pattern PatternOf(const nlohmann::json& pattern) {
  if (pattern.at("kind") == "unstructured") return Pattern::Unstructured(pattern.at("sparsity"));
  if (pattern.at("kind") == "per_row") return Pattern::PerRow(pattern.at("sparsity"));
  return Pattern::KeepOfGroup(pattern.at("keep"), pattern.at("group"));
}

}  // namespace sparsefw::testing

#endif  // SPARSEFW_TESTS_CORE_SOLVER_GOLDEN_JSON_H_
